"""New entities: ranked well from a few facts, while nothing that was learned before moves."""

import numpy as np
import pytest
import torch

import puda
from puda.config import Config
from puda.data.graph import KnowledgeGraph
from puda.errors import DataError, RunError
from puda.fold_in import extend, fold_in
from puda.runs import RunFolder, Trained
from puda.training.trainer import train
from puda.types import Questions

CLUBS, PERSONS, THINGS = 4, 6, 6
FACTS = [
    (f"person {club}{i}", "likes", f"thing {club}{j}")
    for club in range(CLUBS)
    for i in range(PERSONS)
    for j in range(THINGS)
]
NEW = "person 00"
TOLD = [("person 00", "likes", f"thing 0{j}") for j in (0, 1, 2)]  # of six that are liked


STEADY = {"input_dropout": 0.0, "feature_dropout": 0.0, "output_dropout": 0.0}
OPTIONS = {
    "conve": {"kernel": 3, "filters": 4, **STEADY},
    "compgcn": {"kernel": 3, "filters": 4, "dropout": 0.0, "entity_dropout": 0.0},
}


def config(name: str) -> Config:
    return Config.of(
        {
            "scoring": {"name": name, "dim": 32, "options": OPTIONS.get(name, {})},
            "objective": {"weight": 0.01},
            "sampler": {"num_unlabeled": 16},
            "generator": {"num_synthetic": 2},
            "training": {"epochs": 40, "batch_size": 64, "threads": 1, "validate_every": 100},
        }
    )


@pytest.fixture(scope="module", params=["complex", "transe", "conve", "compgcn"])
def trained(request, tmp_path_factory) -> Trained:
    """Train without the new person."""
    graph = KnowledgeGraph.from_facts([fact for fact in FACTS if NEW not in fact])
    path = tmp_path_factory.mktemp("run") / request.param
    return train(graph, config(request.param), path).load()


def test_a_new_entity_is_ranked_by_what_it_was_not_told(trained):
    folded = fold_in(trained, TOLD)
    find = folded.graph.entities.find
    person, likes = find(NEW), folded.graph.relations.find("likes")
    asked = Questions(*(torch.tensor([value]) for value in (person, likes, 0)))
    scores = folded.score(asked)[0]
    untold = [scores[find(f"thing 0{j}")].item() for j in (3, 4, 5)]
    others = [scores[find(f"thing {club}{j}")].item() for club in (1, 2, 3) for j in range(THINGS)]
    assert np.mean([[own > other for other in others] for own in untold]) > 0.95


def test_nothing_that_was_learned_before_moves(trained):
    before = {name: tensor.clone() for name, tensor in trained.model.state_dict().items()}
    rows = trained.entities.clone()
    folded = fold_in(trained, TOLD, steps=5)
    assert torch.equal(folded.entities[: len(rows)], rows)
    assert torch.equal(trained.entities, rows)
    for name, tensor in folded.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_the_same_seed_gives_the_same_rows(trained):
    one, other = (fold_in(trained, TOLD, steps=5).entities for _ in range(2))
    assert torch.equal(one, other)


def test_facts_of_known_entities_become_known_and_move_nothing(trained):
    fact = ("person 10", "likes", "thing 20")
    folded = fold_in(trained, [fact])
    assert torch.equal(folded.entities, trained.entities)
    ids = [folded.graph.entities.find(fact[0]), 0, folded.graph.entities.find(fact[2])]
    assert ids in folded.graph.train.tolist()
    assert len(folded.graph.train) == len(trained.graph.train) + 1


def test_two_new_entities_may_know_each_other(trained):
    folded = fold_in(trained, [*TOLD, ("person 00", "likes", "thing new")])
    assert folded.graph.entities.labels[-2:] == ["person 00", "thing new"]
    assert torch.isfinite(folded.entities).all()


def test_a_run_grown_by_facts_is_a_run(trained, tmp_path):
    run = puda.Run(RunFolder(tmp_path / "before"))
    run.folder.create(trained.config, trained.graph)
    run.folder.save_model(trained.model, trained.entities)
    grown = run.add_facts(TOLD, tmp_path / "after")
    again = puda.open_run(tmp_path / "after")
    assert torch.equal(again.trained.entities, grown.trained.entities)
    [best] = again.predict(head=NEW, relation="likes", k=1)
    assert best.tail in {"thing 03", "thing 04", "thing 05"}  # the others are known
    with pytest.raises(RunError, match="holds a run already"):
        run.add_facts(TOLD, tmp_path / "after")


# --- the graph


GRAPH = KnowledgeGraph.from_facts([("b", "r", "c")], valid=[("c", "r", "b")])


def test_new_entities_stand_behind_the_known_ones():
    graph = extend(GRAPH, [("a", "r", "b"), ("z", "r", "a"), ("b", "r", "c")])
    assert graph.entities.labels == ["b", "c", "a", "z"]
    assert graph.train.tolist() == [[0, 0, 1], [2, 0, 0], [3, 0, 2]]  # one was known already
    assert graph.valid.tolist() == GRAPH.valid.tolist()


def test_a_new_relation_is_refused():
    with pytest.raises(DataError, match="the relation 's' is not in graph.*train anew"):
        extend(GRAPH, [("a", "s", "b")])
