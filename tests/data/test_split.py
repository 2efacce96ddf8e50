"""What is held out is fair: three rules, checked on random graphs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puda.data.split import Split, split
from puda.errors import DataError

fact_arrays = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 2), st.integers(0, 7)), min_size=1, max_size=60
).map(lambda facts: np.array(facts, dtype=np.int64))
shares = st.sampled_from([0.0, 0.05, 0.2, 0.45])
seeds = st.integers(0, 3)


def complete_graph(num_entities: int) -> np.ndarray:
    """Link every two entities by one fact of one relation."""
    return np.array([(i, 0, j) for j in range(num_entities) for i in range(j)])


def random_graph(num_facts: int, num_entities: int, seed: int = 0) -> np.ndarray:
    """Draw distinct facts of relations 0 .. 9; relation r is r + 1 times as frequent as 0."""
    rng = np.random.default_rng(seed)
    relation = rng.choice(10, 2 * num_facts, p=np.arange(1, 11) / 55)
    ends = rng.integers(num_entities, size=(2 * num_facts, 2))
    facts = np.unique(np.stack([ends[:, 0], relation, ends[:, 1]], axis=1), axis=0)
    return rng.permutation(facts)[:num_facts]


@given(fact_arrays, shares, shares, seeds)
def test_every_fact_is_in_exactly_one_part(facts, valid: float, test: float, seed: int) -> None:
    parts = split(facts, valid=valid, test=test, seed=seed)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(facts)))
    assert len(parts.train)


@given(fact_arrays, shares, shares, seeds)
def test_entities_and_relations_that_are_held_out_are_in_train_too(
    facts, valid: float, test: float, seed: int
) -> None:
    parts = split(facts, valid=valid, test=test, seed=seed)
    train = facts[parts.train]
    for held_out in (facts[parts.valid], facts[parts.test]):
        assert set(held_out[:, [0, 2]].flat) <= set(train[:, [0, 2]].flat)
        assert set(held_out[:, 1]) <= set(train[:, 1])


@given(fact_arrays, shares, shares, seeds)
def test_facts_over_the_same_two_entities_stay_together(
    facts, valid: float, test: float, seed: int
) -> None:
    parts = split(facts, valid=valid, test=test, seed=seed)
    pairs = [{frozenset((h, t)) for h, _, t in facts[rows].tolist()} for rows in parts]
    assert not pairs[0] & pairs[1]
    assert not pairs[0] & pairs[2]
    assert not pairs[1] & pairs[2]


def test_each_relation_of_a_large_graph_gives_its_share() -> None:
    facts = random_graph(20_000, 2_000)
    parts = split(facts, valid=0.1, test=0.05)
    sizes = np.bincount(facts[:, 1], minlength=10)
    for rows, share in ((parts.valid, 0.1), (parts.test, 0.05)):
        # Rounding costs less than one; one pair in a hundred has a second fact, which goes along
        # whatever its relation: a few of the 360 that the largest relation gives to valid.
        given_away = np.bincount(facts[rows, 1], minlength=10)
        assert np.abs(given_away - share * sizes).max() <= 6
        assert abs(len(rows) - share * len(facts)) <= 10


def test_ten_facts_give_exactly_their_shares_where_the_graph_is_dense() -> None:
    # Five entities, each pair linked once: 10 facts, of which at most 5 must stay for their
    # entities. So the quotas 0.2 * 10 = 2 of test and 2 of valid can be had.
    parts = split(complete_graph(5), valid=0.2, test=0.2)
    assert [len(rows) for rows in parts] == [6, 2, 2]


def test_small_relations_give_their_share_on_average() -> None:
    # 5 % of ten facts is half a fact: one in every second split. 400 fair coins lie within
    # 4 standard deviations of 200, 4 * sqrt(400 / 4) = 40.
    facts = complete_graph(5)
    parts = [split(facts, seed=seed) for seed in range(400)]
    for rows in ([len(p.valid) for p in parts], [len(p.test) for p in parts]):
        assert set(rows) == {0, 1}
        assert abs(sum(rows) - 200) < 40


def test_a_graph_too_sparse_to_give_anything_keeps_all() -> None:
    star = np.array([(0, 0, i) for i in range(1, 11)])  # each point needs its only fact
    for facts in (star, star[:1]):
        parts = split(facts, valid=0.3, test=0.3)
        assert [len(rows) for rows in parts] == [len(facts), 0, 0]


def test_no_share_holds_nothing_out() -> None:
    facts = random_graph(200, 10)
    assert split(facts, valid=0, test=0).train.tolist() == list(range(200))
    only_test = split(facts, valid=0, test=0.2)
    assert (len(only_test.valid), len(only_test.test) > 0) == (0, True)


def test_facts_that_cannot_be_told_apart_go_together() -> None:
    facts = np.repeat(complete_graph(5), 2, axis=0)
    parts = split(facts, valid=0.2, test=0.2)
    assert len(parts.test)
    for rows in parts:
        assert set((rows ^ 1).tolist()) == set(rows.tolist())  # rows 2k and 2k + 1 are copies


@given(fact_arrays, seeds)
def test_the_same_seed_gives_the_same_split(facts, seed: int) -> None:
    one, two = (split(facts, valid=0.3, test=0.3, seed=seed) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_another_seed_gives_another_split() -> None:
    facts = random_graph(500, 20)

    def held_out(parts: Split) -> tuple[int, ...]:
        return tuple(parts.test.tolist())

    assert len({held_out(split(facts, seed=seed)) for seed in range(5)}) == 5


def test_without_facts_there_is_nothing_to_split() -> None:
    parts = split(np.empty((0, 3), dtype=np.int64))
    assert [len(rows) for rows in parts] == [0, 0, 0]


@pytest.mark.parametrize(
    ("valid", "test"),
    [
        (-0.1, 0.1),
        (0.1, -0.1),
        (0.5, 0.5),
        (0, 1),
        (2, 0),
        pytest.param(0.1, float("nan")),
    ],
)
def test_impossible_shares_are_an_error_that_names_them(valid: float, test: float) -> None:
    with pytest.raises(DataError, match=f"valid={valid} and test={test}"):
        split(complete_graph(5), valid=valid, test=test)
