"""The entity table: rows out, gradients in, and optimisers that touch those rows only."""

import pytest
import torch

from puda.errors import ConfigError
from puda.tables import ROW_OPTIMIZERS, EntityTable, RowAdagrad, RowAdam

NUM_ENTITIES, DIM, STEPS = 20, 6, 50


def start(seed: int = 0) -> torch.Tensor:
    return torch.randn(NUM_ENTITIES, DIM, generator=torch.Generator().manual_seed(seed))


def loss(rows: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Something with a gradient that is neither constant nor linear in the rows."""
    return torch.nn.functional.softplus(rows * targets).sum() + (rows**3).mean()


# Adagrad leaves a row without gradient where it is, so any working set will do (at least one row).
# Dense Adam moves it on by its moments, so there all 20 rows are touched at every step; its bias
# correction 1 - 0.999^n is right to about 2e-5 in single precision, which 50 steps of 0.1 add up.
@pytest.mark.parametrize(
    ("name", "dense", "least", "tolerance"),
    [
        ("adagrad", torch.optim.Adagrad, 1, 1e-6),
        ("adam", torch.optim.Adam, NUM_ENTITIES, 50 * 0.1 * 2e-5),
    ],
)
def test_a_working_set_moves_as_the_dense_optimiser_of_torch_moves_the_whole_table(
    name, dense, least, tolerance
):
    random = torch.Generator().manual_seed(1)
    table = EntityTable(start(), optimizer=name, learning_rate=0.1)
    oracle = torch.nn.Parameter(start())
    optimizer = dense([oracle], lr=0.1)
    for _ in range(STEPS):
        size = int(torch.randint(least, NUM_ENTITIES + 1, (), generator=random))
        ids = torch.randperm(NUM_ENTITIES, generator=random)[:size]  # distinct, in any order
        targets = torch.randn(size, DIM, generator=random)
        rows = table.pull(ids)
        loss(rows, targets).backward()
        table.push(ids, rows.grad)
        optimizer.zero_grad()
        loss(oracle[ids], targets).backward()
        optimizer.step()
    assert (table.weight - start()).abs().max() > 0.5  # it did move
    assert torch.allclose(table.weight, oracle.detach(), rtol=0, atol=tolerance)


def test_adagrads_first_steps_on_one_number_are_those_worked_by_hand():
    # lr 0.5, w = 1. g = 2: s = 4, w = 1 - 0.5 * 2/2 = 0.5. g = -1: s = 5, w = 0.5 + 0.5/sqrt 5.
    table = EntityTable(torch.tensor([[1.0]]), optimizer="adagrad", learning_rate=0.5)
    ids = torch.tensor([0])
    table.push(ids, torch.tensor([[2.0]]))
    assert table.weight.item() == pytest.approx(0.5)
    table.push(ids, torch.tensor([[-1.0]]))
    assert table.weight.item() == pytest.approx(0.5 + 0.5 / 5**0.5)


def test_a_row_of_adam_that_rests_goes_on_as_if_no_step_had_passed():
    # Lazy: row 1 is touched at every third step and must move as a table of its own would, which
    # is stepped at those times only.
    random = torch.Generator().manual_seed(2)
    table = EntityTable(start(), optimizer="adam", learning_rate=0.05)
    alone = torch.nn.Parameter(start()[1:2])
    optimizer = torch.optim.Adam([alone], lr=0.05)
    for step in range(30):
        ids = torch.tensor([0, 1, 2] if step % 3 == 0 else [0, 2])
        gradient = torch.randn(len(ids), DIM, generator=random)
        table.push(ids, gradient)
        if step % 3 == 0:
            alone.grad = gradient[1:2]
            optimizer.step()
    assert torch.allclose(table.weight[1:2], alone.detach(), rtol=0, atol=10 * 0.05 * 2e-5)


@pytest.mark.parametrize("name", ROW_OPTIMIZERS)
def test_a_row_that_is_not_touched_does_not_move_nor_does_its_state(name):
    random = torch.Generator().manual_seed(3)
    table = EntityTable(start(), optimizer=name, learning_rate=0.1)
    everyone = torch.arange(NUM_ENTITIES)
    table.push(everyone, torch.randn(NUM_ENTITIES, DIM, generator=random))  # moments are not zero
    weight = table.weight.clone()
    state = {key: value.clone() for key, value in table.optimizer.state.items()}
    ids = torch.tensor([3, 11, 19])
    for _ in range(5):
        table.push(ids, torch.randn(3, DIM, generator=random))
    rest = torch.tensor([i for i in range(NUM_ENTITIES) if i not in ids])
    assert torch.equal(table.weight[rest], weight[rest])
    for key, value in table.optimizer.state.items():
        assert torch.equal(value[rest], state[key][rest])
    assert (table.weight[ids] != weight[ids]).all()


@pytest.mark.parametrize("name", ROW_OPTIMIZERS)
def test_a_gradient_of_zero_moves_nothing_and_stays_finite(name):
    table = EntityTable(start(), optimizer=name, learning_rate=0.1)
    table.push(torch.tensor([0, 1]), torch.zeros(2, DIM))
    assert torch.equal(table.weight, start())


def test_a_learning_rate_set_later_counts_from_then_on():
    table = EntityTable(torch.zeros(1, 1), optimizer="adagrad", learning_rate=1.0)
    table.optimizer.learning_rate = 0.25
    table.push(torch.tensor([0]), torch.tensor([[4.0]]))  # Adagrad's first step is the rate itself
    assert table.weight.item() == pytest.approx(-0.25)


def test_pull_gives_a_leaf_in_the_order_asked_for_that_shares_no_memory_with_the_table():
    table = EntityTable(start(), optimizer="adagrad", learning_rate=0.1)
    ids = torch.tensor([7, 2, 13])
    rows = table.pull(ids)
    assert rows.is_leaf and rows.requires_grad
    assert torch.equal(rows, start()[[7, 2, 13]])
    with torch.no_grad():
        rows.fill_(5.0)
    assert torch.equal(table.weight, start())
    assert not table.weight.requires_grad


def test_the_registry_names_both_optimisers_and_an_unknown_name_lists_them():
    assert ROW_OPTIMIZERS["adagrad"] is RowAdagrad
    assert ROW_OPTIMIZERS["adam"] is RowAdam
    with pytest.raises(ConfigError, match="'sgd'.*adagrad, adam"):
        EntityTable(start(), optimizer="sgd", learning_rate=0.1)
