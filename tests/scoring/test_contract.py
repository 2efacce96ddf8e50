"""What every scoring function promises, asked of each entry of the registry, new ones included."""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import product
from typing import Annotated

import pytest
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from puda.config import Config, Options, ScoringConfig
from puda.data.graph import KnowledgeGraph
from puda.errors import ConfigError
from puda.generator import Generator
from puda.runs import RunFolder, Trained
from puda.scoring import SCORING, ScoringFunction, TiledScoring, build_model, register
from puda.scoring.distmult import DistMult
from puda.seeds import ambient, stream
from puda.training.build import build_learner
from puda.training.step import train_step
from puda.types import Batch, Questions
from toy import family_tree, labels

DIM = 32

NEEDED: dict[str, Options] = {"compgcn": {"kernel": 3, "filters": 8}}
"""Options without which a model does not fit into DIM floats."""

VARIANTS: dict[str, list[Options]] = {
    "transe": [{"norm": 2}],
    "rotate": [{"squared": True}],
    "conve": [{"interleaved": True}],
    "convkb": [{"filters": 3}],
    "compgcn": [
        {"decoder": "distmult", "composition": "multiplication"},
        {"composition": "subtraction", "layers": 2},
    ],
    "hran": [{"layers": 2, "beta": 0.6}],
    "graph-complex": [{"messages": "hran", "unheard": 0.5}],
}
"""Options beside the defaults that make another formula of a model."""

Width = Annotated[int, Field(ge=2)]
"""The kind of an option that only this module knows."""

PACKED = {"complex", "simple", "rotate", "graph-complex"}
"""Models whose rows are two halves."""

SYMMETRIC = {"distmult", "pykeen"}
"""Models that score <h, r, t> and <t, r, h> alike, unless they are reciprocal."""

BLIND = {"graph-complex"}
"""Models that never hear of the facts that a step asks for."""

NORMALISING = {"conve", "compgcn", "hran"}
"""Models that normalise questions over a batch."""


@dataclass(frozen=True)
class Case:
    """A model as a config names it."""

    name: str
    options: Options = field(default_factory=dict)

    @property
    def config(self) -> Config:
        """Return settings of size DIM under PUDA; a prior that gradients can be seen by."""
        return Config.of(
            {
                "scoring": {"name": self.name, "dim": DIM, "options": self.options},
                "objective": {"name": "puda", "options": {"prior": 0.1}, "weight": 0.0},
                "sampler": {"num_unlabeled": 1000},  # more than there are: all
                "generator": {"num_synthetic": 32},
            }
        )

    def __str__(self) -> str:
        return "-".join([self.name, *(f"{k}={v}" for k, v in self.options.items())])


def cases() -> Iterator[Case]:
    """Each entry by its defaults, with the other choice of `reciprocal`, and its variants."""
    for name, kind in SCORING.items():
        needed = NEEDED.get(name, {})
        yield Case(name, needed)
        if (reciprocal := inspect.signature(kind).parameters.get("reciprocal")) is not None:
            yield Case(name, {**needed, "reciprocal": not reciprocal.default})
        for options in VARIANTS.get(name, ()):
            yield Case(name, {**needed, **options})


def _where_installed(name: str) -> list[pytest.MarkDecorator]:
    missing = name == "pykeen" and find_spec("pykeen") is None
    return [pytest.mark.skipif(missing, reason="PyKEEN is not installed")]


CASES = [pytest.param(case, id=str(case), marks=_where_installed(case.name)) for case in cases()]
every_model = pytest.mark.parametrize("case", CASES)
every_entry = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=_where_installed(name)) for name in SCORING]
)


def _graph() -> KnowledgeGraph:
    """Return a family of 14 and a stranger, who has no training fact."""
    tree = family_tree(3)
    test = labels(tree, "test") | {("stranger", "child of", "a")}
    return KnowledgeGraph.from_facts(labels(tree, "train"), valid=labels(tree, "valid"), test=test)


GRAPH = _graph()


def build(case: Case, graph: KnowledgeGraph = GRAPH) -> ScoringFunction:
    """Make a model in eval mode; weights and running statistics of size 1, so that errors show."""
    with ambient(7, "model"):
        model = build_model(case.config.scoring, graph)
        randomise(model)
    return model.eval()


def randomise(model: nn.Module) -> None:
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(0, 0.3)
        for norm in model.modules():
            if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
                norm.running_mean.normal_()
                norm.running_var.uniform_(0.5, 1.5)


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 0.5


def table(model: ScoringFunction) -> Tensor:
    return draw(model.num_entities, model.row_dim)


def ask(number: int | None = None) -> tuple[Questions, Tensor]:
    """Return questions of both sides and all relations with their answers."""
    questions, answers = Questions.both(torch.tensor(GRAPH.train))
    order = torch.randperm(len(questions), generator=torch.Generator().manual_seed(2))[:number]
    return questions[order], answers[order]


def state(model: ScoringFunction) -> dict[str, Tensor]:
    return {**model.state_dict(), "entities": model.initial_entities()}


# --- scores


@every_model
@torch.no_grad()
def test_shared_rows_own_rows_and_single_pairs_score_alike(case):
    model = build(case).double()
    rows = model.contextualize(table(model).double())
    questions, _ = ask(8)
    assert set(questions.side.tolist()) == {0, 1}
    question = model.ask(questions, rows)
    shared = model.match(question, rows)
    own_ids = draw(8, len(rows), seed=3).argsort(1)[:, :6]  # distinct in each row
    own = model.match(question, rows[own_ids])
    slow = torch.empty(8, len(rows), dtype=torch.double)
    for q, e in product(range(8), range(len(rows))):
        alone = model.ask(questions[q : q + 1], rows)
        slow[q, e] = model.match(alone, rows[e : e + 1]).item()
    assert shared.std() > 1e-3  # there is something to compare
    torch.testing.assert_close(shared, slow, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(own, slow.gather(1, own_ids), rtol=1e-9, atol=1e-9)


@every_model
@pytest.mark.parametrize("number", [3, 60], ids=["few questions", "many"])
@torch.no_grad()
def test_rows_score_alike_among_others_and_laid_together(case, number):
    model = build(case).eval()
    rows = model.contextualize(table(model))
    question = model.ask(ask()[0], rows)
    question = question.repeat(-(-number // len(question)), *[1] * (question.dim() - 1))[:number]
    ids = torch.tensor([4, 0, 2])
    found = model.match_among(question, rows, ids)
    torch.testing.assert_close(found, model.match(question, rows[ids]), rtol=1e-4, atol=1e-4)


@every_model
@torch.no_grad()
def test_single_precision_is_enough_for_many_candidates(case):
    # Some fast paths begin at a number of candidates, e.g. that of torch.cdist at 26.
    model = build(case)
    rows, candidates = table(model), draw(100, model.row_dim, seed=5)
    question = model.ask(ask(40)[0], model.contextualize(rows))
    exact = build(case).double()
    rows, double = rows.double(), candidates.double()
    expected = exact.match(exact.ask(ask(40)[0], exact.contextualize(rows)), double)
    for given in (candidates, candidates.expand(40, -1, -1)):
        scores = model.match(question, given)
        torch.testing.assert_close(scores.double(), expected, rtol=1e-3, atol=1e-3)


@every_model
@torch.no_grad()
def test_both_questions_of_a_fact_score_it_alike_unless_the_model_is_reciprocal(case):
    model = build(case).double()
    rows = model.contextualize(table(model).double())
    questions, answers = Questions.both(torch.tensor(GRAPH.train))
    scores = model.match(model.ask(questions, rows), rows[answers].unsqueeze(1)).squeeze(1)
    by_tail, by_head = scores.chunk(2)
    if model.reciprocal:
        assert not torch.isclose(by_tail, by_head).any()
    else:
        torch.testing.assert_close(by_tail, by_head, rtol=1e-9, atol=1e-9)


@every_model
def test_reciprocal_relations_are_ids_of_their_own_and_others_are_shared(case):
    model = build(case)
    relation, side = torch.arange(GRAPH.num_relations).repeat(2), torch.tensor([0, 1])
    side = side.repeat_interleave(GRAPH.num_relations)
    directed = model.directed(relation, side)
    expected = 2 * GRAPH.num_relations if model.reciprocal else GRAPH.num_relations
    assert model.num_directed == expected == len(directed.unique())
    assert torch.equal(directed[: GRAPH.num_relations], torch.arange(GRAPH.num_relations))


@every_model
@torch.no_grad()
def test_a_score_depends_on_anchor_relation_side_and_candidate(case):
    model = build(case)
    rows = model.contextualize(table(model))
    questions, _ = ask(16)
    scores = model.match(model.ask(questions, rows), rows)
    changes = {
        "anchor": (questions.anchor + 1) % GRAPH.num_entities,
        "relation": (questions.relation + 1) % GRAPH.num_relations,
        "side": 1 - questions.side,
    }
    if case.name in SYMMETRIC and not model.reciprocal:
        del changes["side"]
    for name, ids in changes.items():
        other = model.match(model.ask(replace(questions, **{name: ids}), rows), rows)
        assert not torch.isclose(other, scores).all(1).any(), name
    assert not torch.isclose(scores[:, 1:], scores[:, :-1]).all(0).any()


@every_model
@torch.no_grad()
def test_rows_that_are_no_entitys_are_scored(case):
    model = build(case)
    question = model.ask(ask(5)[0], model.contextualize(table(model)))
    for number in (0, 1, 7, 30):
        invented = Generator(model.row_dim)(number, stream(0, "noise"))
        shared = model.match(question, invented)
        own = model.match(question, invented.expand(5, number, model.row_dim))
        assert shared.shape == own.shape == (5, number)
        assert shared.isfinite().all()
        torch.testing.assert_close(own, shared, rtol=1e-3, atol=1e-3)


@every_model
@torch.no_grad()
def test_no_questions_have_no_scores(case):
    model = build(case)
    rows = model.contextualize(table(model))
    none = model.ask(ask(5)[0], rows)[:0]
    assert model.match(none, rows).shape == (0, GRAPH.num_entities)
    assert model.match(none, rows.expand(0, -1, -1)).shape == (0, GRAPH.num_entities)


# --- gradients


class Recorder:
    """Stands in for an optimiser: keeps the gradients it is to step by, and moves nothing."""

    def __init__(self, module: nn.Module) -> None:
        self.module, self.seen = module, {}

    def step(self) -> None:
        """Keep the gradients."""
        self.seen = {
            name: torch.zeros_like(weight) if weight.grad is None else weight.grad.clone()
            for name, weight in self.module.named_parameters()
        }

    def zero_grad(self) -> None:
        """Clear them, as an optimiser does."""
        self.module.zero_grad()


def gradients(case: Case, *, training: bool) -> dict[str, Tensor]:
    """Return all gradients of a step under PUDA: of model, entities and generator."""
    with ambient(7, "step"):
        learner = build_learner(GRAPH, case.config)
        randomise(learner.model)
        learner.entities.weight.copy_(table(learner.model))
        learner.model.train(training)
        learner.optimizer = Recorder(learner.model)
        learner.adversary.optimizer = Recorder(learner.adversary.generator)
        found = {"entities": torch.zeros_like(learner.entities.weight)}
        learner.entities.push = lambda ids, *gradients: found["entities"].index_add_(
            0, ids, torch.cat(gradients)
        )
        train_step(learner, Batch(*ask(40)), stream(3, "draws"))
    found |= {f"model.{name}": grad for name, grad in learner.optimizer.seen.items()}
    found |= {f"generator.{name}": grad for name, grad in learner.adversary.optimizer.seen.items()}
    return found


@every_model
def test_a_step_in_training_mode_has_finite_gradients_everywhere(case):
    found = gradients(case, training=True)
    assert found["entities"].any()
    for name, gradient in found.items():
        assert gradient.isfinite().all(), name


@every_model
def test_a_step_moves_every_parameter_every_touched_row_and_the_generator(case):
    # In eval mode: in training mode batch normalisation takes out every bias right before it.
    found = gradients(case, training=False)
    for name, gradient in found.items():
        assert gradient.abs().max() > 1e-8, name
    touched = found["entities"].abs().amax(1) > 0
    assert touched.sum() == GRAPH.num_entities  # the pool holds them all


@every_model
def test_gradients_are_finite_where_all_weights_and_rows_are_zero(case):
    # Here a distance has its kink, a norm its root, and every candidate ties.
    model = build(case).train()
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    rows = torch.zeros(model.num_entities, model.row_dim, requires_grad=True)
    context = model.contextualize(rows)
    questions, answers = ask(30)
    question = model.ask(questions, context)
    scores = model.match(question, context)
    positive = model.match(question, context[answers].unsqueeze(1))
    nn.functional.softplus(scores - positive).sum().backward()
    assert scores.isfinite().all()
    assert rows.grad.isfinite().all()
    for name, weight in model.named_parameters():
        assert weight.grad is None or weight.grad.isfinite().all(), name


@every_model
def test_gradients_are_the_slopes_of_scores(case):
    # Along random directions of the entity table and of each parameter by itself.
    model = build(case).double()
    rows = table(model).double().requires_grad_()
    questions, answers = ask(3)

    def total() -> Tensor:
        context = model.contextualize(rows)
        return model.match(model.ask(questions, context), context[answers]).sum()

    leaves = {"entities": rows, **dict(model.named_parameters())}
    slopes = torch.autograd.grad(total(), list(leaves.values()))
    for (name, leaf), slope in zip(leaves.items(), slopes, strict=True):
        direction = draw(*leaf.shape, seed=9).double()
        with torch.no_grad():
            leaf += 1e-6 * direction
            above = total()
            leaf -= 2e-6 * direction
            below = total()
            leaf += 1e-6 * direction
        measured = (above - below).item() / 2e-6
        assert measured == pytest.approx((slope * direction).sum().item(), rel=1e-4, abs=1e-6), name


# --- tiles


TILED = [p for p in CASES if issubclass(SCORING[p.values[0].name], TiledScoring)]


def _scores_and_gradients(model: TiledScoring, questions: Questions, rows: Tensor, *, own: bool):
    rows = rows.clone().requires_grad_()
    model.zero_grad()
    candidates = rows.expand(len(questions), -1, -1) if own else rows
    scores = model.match(model.ask(questions, rows), candidates)
    (scores * draw(*scores.shape, seed=8)).sum().backward()
    return [scores.detach(), rows.grad, *(weight.grad for weight in model.parameters())]


@pytest.mark.parametrize("own", [False, True], ids=["shared", "own"])
@pytest.mark.parametrize("tile", [1, 5_000, 4_000_000])
@pytest.mark.parametrize("case", TILED)
def test_scores_and_gradients_do_not_depend_on_the_tile(case, tile, own, monkeypatch):
    model, questions = build(case).double(), ask(5)[0]
    rows = draw(1100, model.row_dim).double()  # more than the 1024 candidates of a tile
    whole = model.match(model.ask(questions, rows), rows)

    def undivided(self: TiledScoring, question: Tensor, candidates: Tensor) -> Tensor:
        candidates = candidates.unsqueeze(0) if candidates.dim() == 2 else candidates
        return self.compare(question.unsqueeze(1), candidates)

    with monkeypatch.context() as patch:
        patch.setattr(type(model), "match", undivided)
        expected = _scores_and_gradients(model, questions, rows, own=own)
    monkeypatch.setattr(type(model), "tile", tile)
    found = _scores_and_gradients(model, questions, rows, own=own)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    with torch.no_grad():
        again = model.match(model.ask(questions, rows), rows)
    torch.testing.assert_close(again, whole, rtol=1e-12, atol=1e-12)


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation made."""

    floats = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor):
            self.floats = max(self.floats, made.numel())
        return made


@pytest.mark.parametrize("own", [False, True], ids=["shared", "own"])
@pytest.mark.parametrize("case", TILED)
@torch.no_grad()
def test_no_intermediate_value_is_larger_than_a_tile(case, own, monkeypatch):
    model = build(case)
    rows = draw(100, model.row_dim)
    question = model.ask(ask(40)[0], rows)
    candidates = rows.expand(40, -1, -1) if own else rows
    with Largest() as whole:
        model.compare(question.unsqueeze(1), candidates if own else candidates.unsqueeze(0))
    tile = whole.floats // 3
    monkeypatch.setattr(type(model), "tile", tile)
    with Largest() as tiled:
        model.match(question, candidates)
    assert tiled.floats <= tile


@pytest.mark.parametrize("case", TILED)
def test_a_tile_that_is_computed_again_for_the_gradient_drops_the_same_numbers(case):
    # In training mode dropout draws anew; the recomputed tile has to see the first draw.
    model, questions = build(case).train(), ask(5)[0]
    rows = draw(50, model.row_dim)
    found = []
    for match in (model.match, lambda q, c: model.compare(q.unsqueeze(1), c.unsqueeze(0))):
        leaf = rows.clone().requires_grad_()
        with ambient(3, "dropout"):
            scores = match(model.ask(questions, leaf), leaf)
            scores.square().sum().backward()
        found.append((scores.detach(), leaf.grad))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-4)


# --- regularisers and relation prediction


@every_model
@torch.no_grad()
def test_relate_equals_the_match_of_each_relation_or_says_that_it_cannot(case):
    model = build(case).double()
    rows = model.contextualize(table(model).double())
    questions, answers = ask(10)
    anchor, answer = rows[questions.anchor], rows[answers]
    if type(model).relate is ScoringFunction.relate:
        with pytest.raises(ConfigError, match=r"relation_weight=0"):
            model.relate(anchor, answer, questions.side)
        return
    found = model.relate(anchor, answer, questions.side)
    assert found.shape == (10, model.num_directed)
    for directed in range(model.num_directed):
        relation = torch.full((10,), directed % model.num_relations)
        side = torch.full((10,), directed // model.num_relations)
        question = model.encode(anchor, relation, side if model.reciprocal else questions.side)
        expected = model.match(question, answer.unsqueeze(1)).squeeze(1)
        torch.testing.assert_close(found[:, directed], expected, rtol=1e-9, atol=1e-9)


@every_model
@torch.no_grad()
def test_the_parts_of_facts_have_sizes_that_are_finite_and_not_negative(case):
    model = build(case)
    rows = model.contextualize(table(model))
    questions, answers = ask(10)
    anchor, answer = rows[questions.anchor], rows[answers]
    factors = model.factors(anchor, questions.relation, questions.side, answer)
    assert len(factors) >= 2
    for factor in factors:
        assert len(factor) == 10
        assert factor.isfinite().all()
        assert (factor >= 0).all()
        assert factor.sum() > 0
    # The first is the anchor's, the last the answer's: DURA goes by that.
    for factor, vectors in ((factors[0], anchor), (factors[-1], answer)):
        torch.testing.assert_close(factor.flatten(1).sum(1), vectors.square().sum(1))


# --- what a model is made of


@every_model
@torch.no_grad()
def test_a_saved_and_loaded_model_scores_to_the_same_bits(case, tmp_path):
    model = build(case)
    entities = table(model)
    folder = RunFolder(tmp_path / "run")
    folder.create(case.config, GRAPH)
    folder.save_model(model, entities)
    questions, _ = ask()
    before = Trained(case.config, GRAPH, model, entities).score(questions)
    loaded = folder.load()
    assert not loaded.model.training
    assert torch.equal(loaded.score(questions), before)


@every_model
def test_one_seed_gives_the_same_first_bits_and_another_seed_others(case):
    def start(seed: int) -> dict[str, Tensor]:
        with ambient(seed, "model"):
            return state(build_model(case.config.scoring, GRAPH))

    first, again, other = start(0), start(0), start(1)
    assert first.keys() == again.keys() == other.keys()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["entities"], other["entities"])
    assert any(not torch.equal(first[name], other[name]) for name in first if name != "entities")


@every_model
def test_the_first_entity_table_has_a_finite_row_of_its_own_for_each_entity(case):
    model = build(case)
    rows = model.initial_entities()
    assert rows.shape == (GRAPH.num_entities, model.row_dim)
    assert rows.dtype == torch.float32
    assert not rows.requires_grad
    assert rows.isfinite().all()
    assert len(rows.unique(dim=0)) == GRAPH.num_entities


@every_model
@torch.no_grad()
def test_facts_held_out_for_valid_and_test_change_nothing(case):
    def scores(graph: KnowledgeGraph) -> Tensor:
        model = build(case, graph)
        rows = model.contextualize(table(model))
        return model.match(model.ask(ask()[0], rows), rows)

    assert len(GRAPH.valid)
    assert len(GRAPH.test)
    changed = replace(GRAPH, valid=GRAPH.test.copy(), test=GRAPH.valid[:0].copy())
    assert torch.equal(scores(changed), scores(GRAPH))
    turned = GRAPH.train.copy()
    turned[:, [0, 2]] = turned[:, [2, 0]]
    sees_train = not torch.equal(scores(replace(GRAPH, train=turned)), scores(GRAPH))
    assert sees_train == SCORING[case.name].whole_graph


@every_model
@torch.no_grad()
def test_rows_depend_on_each_other_only_where_the_model_says_so(case):
    model = build(case)
    rows = table(model)
    if model.whole_graph:
        # Only what training facts connect: the stranger hears of nobody, and nobody of them.
        stranger = GRAPH.entities.find("stranger")
        moved = rows.clone()
        moved[stranger] += 1
        changed = (model.contextualize(moved) != model.contextualize(rows)).any(1)
        assert changed.nonzero().flatten().tolist() == [stranger]
        moved = rows.clone()
        moved[GRAPH.entities.find("a")] += 1
        changed = (model.contextualize(moved) != model.contextualize(rows)).any(1)
        assert changed.sum() > 1
    else:
        some = torch.tensor([3, 0, 5])
        assert torch.equal(model.contextualize(rows[some]), model.contextualize(rows)[some])


@pytest.mark.parametrize(
    "case", [case for case in CASES if SCORING[case.values[0].name].whole_graph]
)
@pytest.mark.parametrize("wanted", [[4], [0, 1, 5, 9], list(range(15))])
@torch.no_grad()
def test_rows_by_what_they_hear_from_are_those_of_the_whole_graph(case, wanted):
    model = build(case)
    rows = table(model).double()
    model.double()
    asked = GRAPH.train[: 0 if case.name in BLIND else 3]
    near = model.neighbourhood(torch.tensor(wanted), torch.tensor(asked))
    assert set(wanted) <= set(near.ids.tolist())
    found = model.contextualize(rows[near.ids], near)
    torch.testing.assert_close(found, model.contextualize(rows)[wanted])


# --- options


@every_entry
def test_an_unknown_option_names_the_nearest(name):
    known = [
        key for key in inspect.signature(SCORING[name]).parameters if key not in ("graph", "dim")
    ]
    wrong = f"{known[0]}s" if known else "reciprocal"
    with pytest.raises(ConfigError) as caught:
        build_model(ScoringConfig(name=name, dim=DIM, options={wrong: 1}), GRAPH)
    assert f"{name} has no option {wrong!r}" in str(caught.value)
    assert (f"did you mean {known[0]!r}" if known else "it has none") in str(caught.value)


@every_entry
def test_an_option_may_not_replace_what_the_trainer_gives(name):
    with pytest.raises(ConfigError, match="has no option 'dim'"):
        build_model(ScoringConfig(name=name, dim=DIM, options={"dim": 8}), GRAPH)


@pytest.mark.parametrize("name", sorted(PACKED))
def test_an_odd_dim_for_two_halves_is_refused(name):
    with pytest.raises(ConfigError, match=r"scoring\.dim = 33.*even"):
        build_model(ScoringConfig(name=name, dim=33), GRAPH)


@every_entry
@pytest.mark.parametrize("dim", [1, 2, 3, 7, 12])
@torch.no_grad()
def test_any_dim_is_either_scored_or_refused_by_name(name, dim):
    try:
        model = build_model(ScoringConfig(name=name, dim=dim), GRAPH).eval()
    except ConfigError as error:
        assert f"dim = {dim}" in str(error)
        return
    rows = model.contextualize(model.initial_entities())
    assert model.match(model.ask(ask(4)[0], rows), rows).isfinite().all()


def test_an_unknown_scoring_function_names_the_nearest():
    with pytest.raises(ConfigError, match="no scoring function 'distmul': did you mean 'distmult'"):
        build_model(ScoringConfig(name="distmul"), GRAPH)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("transe", {"norm": 3}),
        ("compgcn", {"composition": "addition"}),
        ("compgcn", {"decoder": "transe"}),
        ("graph-complex", {"messages": "sage"}),
        ("conve", {"kernel": 9}),
        ("hran", {"kernel": 9}),
    ],
)
def test_a_choice_that_there_is_not_is_refused(name, options):
    with pytest.raises(ConfigError, match=str(next(iter(options.values())))):
        build_model(ScoringConfig(name=name, dim=DIM, options=options), GRAPH)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("distmult", {"reciprocal": "no"}),  # a true string: reciprocal relations
        ("conve", {"filters": "many"}),
        ("conve", {"filters": -1}),
        ("conve", {"kernel": 0}),
        ("crosse", {"dropout": 1.5}),
        ("rotate", {"margin": -2}),
        ("rotate", {"margin": float("nan")}),
        ("rotate", {"margin": float("inf")}),
    ],
)
def test_an_option_of_the_wrong_kind_or_range_is_refused(name, options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        build_model(Case(name, options).config.scoring, GRAPH)


def test_options_of_a_model_of_ones_own_are_checked_even_if_its_annotations_are_words(monkeypatch):
    # `from __future__ import annotations` makes all of a module's annotations strings.
    class Own(DistMult):
        """A model whose annotations are strings."""

        def __init__(self, graph: "KnowledgeGraph", dim: "int", width: "Width" = 3) -> None:
            super().__init__(graph, dim)
            self.width = width

    monkeypatch.setitem(SCORING, "own", Own)
    config = ScoringConfig(name="own", dim=DIM, options={"width": 5})
    assert build_model(config, GRAPH).width == 5
    with pytest.raises(ConfigError, match="width"):
        build_model(ScoringConfig(name="own", dim=DIM, options={"width": "broad"}), GRAPH)


def test_a_name_that_is_taken_cannot_be_registered_again():
    with pytest.raises(ConfigError, match="'distmult' already"):
        register("distmult")(SCORING["complex"])
    assert register("distmult")(SCORING["distmult"]) is SCORING["distmult"]


# --- small batches


@every_model
def test_a_step_on_a_single_question_works_or_says_why_not(case):
    learner = build_learner(GRAPH, case.config)
    learner.model.train()
    try:
        _, scores = train_step(learner, Batch(*ask(1)), stream(3, "draws"))
    except ConfigError as error:
        assert "training.batch_size" in str(error)
        assert case.name in NORMALISING
        return
    assert scores.positive.isfinite().all()


@every_model
def test_a_step_on_two_questions_works(case):
    learner = build_learner(GRAPH, case.config)
    learner.model.train()
    risk, scores = train_step(learner, Batch(*ask(2)), stream(3, "draws"))
    assert scores.positive.shape == (2,)
    assert risk.total.isfinite()
