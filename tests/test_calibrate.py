"""Probabilities of a run: learned from held-out facts, and true of other held-out facts."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from puda import calibrate as calibration
from puda.calibrate import (
    Calibration,
    calibrate,
    check,
    cover,
    draw_unlabeled,
    fact_scores,
    is_foreign,
    places,
)
from puda.config import Config
from puda.data.graph import KnowledgeGraph
from puda.errors import PudaError, RunError
from puda.evaluation.ranking import rank
from puda.predict import predict
from puda.runs import RunFolder, Trained
from puda.training.trainer import train
from puda.types import Questions, Side


def clubs(seed: int = 0) -> KnowledgeGraph:
    """Persons of 6 clubs like most things of their own; `home` names the one town of each club."""
    rng = np.random.default_rng(seed)
    likes, homes = [], []
    for club in range(6):
        for i in range(12):
            homes.append((f"person {club}.{i}", "home", f"town {club}"))
            for j in range(12):
                if rng.random() < 0.8:
                    likes.append((f"person {club}.{i}", "likes", f"thing {club}.{j}"))
    rng.shuffle(likes)
    rng.shuffle(homes)
    facts = [*likes, *homes]
    held_out = {
        "valid": likes[:110] + homes[:10],
        "test": likes[110:220] + homes[10:20],
    }
    gone = {*map(tuple, held_out["valid"]), *map(tuple, held_out["test"])}
    train_facts = [tuple(fact) for fact in facts if tuple(fact) not in gone]
    return KnowledgeGraph.from_facts(
        train_facts, **{k: [tuple(f) for f in v] for k, v in held_out.items()}, name="clubs"
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Trained:
    """Train on the clubs."""
    config = Config.of(
        {
            "scoring": {"name": "complex", "dim": 32},
            "objective": {"weight": 0.01},
            "sampler": {"num_unlabeled": 64},
            "generator": {"num_synthetic": 0},
            "training": {"epochs": 15, "batch_size": 128, "threads": 1, "validate_every": 5},
        }
    )
    return train(clubs(), config, tmp_path_factory.mktemp("calibrate") / "run").load()


@pytest.fixture(scope="module")
def fitted(trained) -> Calibration:
    return calibrate(trained)


def test_probabilities_are_shares_and_facts_have_higher_ones_than_others(trained, fitted):
    graph = trained.graph
    true = fitted.probability(trained, graph.test, known=("train", "valid"))
    other = fitted.probability(trained, draw_unlabeled(graph, seed=7), known=("train", "valid"))
    assert (true >= 0).all() and (true <= 1).all()
    assert np.median(true) > 5 * np.median(other)


def test_probabilities_come_about_true_on_the_test_split(trained, fitted):
    assert check(trained, fitted).ece < 0.1


def test_candidates_are_those_of_whole_questions_until_there_are_enough(trained):
    graph = trained.graph
    few, more = (calibration._rivals(graph, number) for number in (1, 200))
    persons, things = (len({*graph.train[:, column]}) for column in (0, 2))
    assert 1 < len(few) <= persons + things
    assert len(few) < 200 < len(more) + persons + things
    assert {tuple(fact) for fact in few.tolist()} <= {tuple(fact) for fact in more.tolist()}


def test_one_town_is_home_so_that_a_second_is_unlikely(trained, fitted):
    # The best answer to a question that has one already, against one that has none.
    graph = trained.graph
    home = graph.relations.find("home")
    known = graph.known("train")
    persons = [graph.entities.find(f"person 0.{i}") for i in range(12)]
    town = graph.entities.find("town 1")
    settled = [p for p in persons if len(known.of(p, home, 0))]
    facts = np.array([(p, home, town) for p in settled])
    held_out = graph.test[graph.test[:, 1] == home]
    assert fitted.probability(trained, facts, known=("train",)).max() < 0.3
    assert fitted.probability(trained, held_out, known=("train",)).mean() > 0.3


def test_only_a_relation_with_enough_facts_has_a_curve_of_its_own(trained, fitted):
    by_label = dict(zip(trained.graph.relations.labels, fitted.curves, strict=True))
    assert by_label["home"] == [1.0, 0.0]
    assert by_label["likes"] != [1.0, 0.0]
    assert len(fitted.prior) == 2 and all(0 <= prior <= 1 for prior in fitted.prior)


def test_answer_sets_hold_most_test_answers(trained, fitted):
    graph = trained.graph
    ranks = rank(trained.score, graph.test, graph.known("train", "valid", "test")).realistic
    sizes = np.array([fitted.answers[r] for r in graph.test[:, 1]], dtype=float)
    found = cover(trained, fitted)
    assert found.overall == pytest.approx((ranks <= sizes).mean())
    assert 0.8 < found.overall <= 1
    likes = graph.test[:, 1] == graph.relations.find("likes")
    assert found.relations["likes"] == pytest.approx((ranks <= sizes)[likes].mean())


def test_a_set_of_all_answers_holds_every_one(trained, fitted):
    everything = replace(fitted, answers=[[None, None] for _ in fitted.answers])
    assert cover(trained, everything).overall == 1


def test_true_negatives_are_used_where_there_are_any(trained):
    graph = trained.graph
    untrue = draw_unlabeled(graph, seed=3)[:400]
    with_negatives = replace(graph, negatives={"valid": untrue[::2], "test": untrue[1::2]})
    judge = replace(trained, graph=with_negatives)
    found = calibrate(judge)
    assert found.negatives
    assert check(judge, found).ece < 0.15
    other = found.probability(judge, untrue[1::2], known=("train", "valid"))
    own = found.probability(judge, graph.test, known=("train", "valid"))
    assert own.mean() > 0.6 > 0.4 > other.mean()


def test_the_same_seed_gives_the_same_calibration(trained, fitted):
    assert calibrate(trained) == fitted


def test_what_is_saved_is_what_is_loaded(trained, fitted, tmp_path):
    folder = RunFolder(tmp_path)
    assert Calibration.load(folder) is None
    fitted.save(folder)
    assert Calibration.load(folder) == fitted


@pytest.mark.parametrize("text", ["", "{}", '{"center": []}', "[1]"])
def test_a_damaged_file_is_named(tmp_path, text):
    (tmp_path / calibration.FILE).write_text(text)
    with pytest.raises(RunError, match="calibration.json"):
        Calibration.load(RunFolder(tmp_path))


def test_the_file_of_another_version_is_named_with_the_remedy(fitted, tmp_path):
    replace(fitted, slopes=fitted.slopes[:5]).save(RunFolder(tmp_path))
    remedy = "another version of puda: puda calibrate fits it anew"
    with pytest.raises(RunError, match=remedy):
        Calibration.load(RunFolder(tmp_path))
    fields = asdict(fitted)
    del fields["foreign"]
    (tmp_path / calibration.FILE).write_text(json.dumps(fields))
    with pytest.raises(RunError, match=remedy):
        Calibration.load(RunFolder(tmp_path))


def test_too_few_validation_facts_are_refused(trained):
    graph = replace(trained.graph, valid=trained.graph.valid[:10])
    with pytest.raises(PudaError, match="has 10 validation facts: calibration needs at least 30"):
        calibrate(replace(trained, graph=graph))


def test_a_graph_without_test_facts_cannot_be_checked(trained, fitted):
    graph = replace(trained.graph, test=trained.graph.test[:0])
    with pytest.raises(PudaError, match="no test facts"):
        check(replace(trained, graph=graph), fitted)


# --- the parts


def test_a_facts_score_is_the_mean_of_its_two_questions(trained):
    fact = trained.graph.test[0]
    (tail, _), (head, _) = (Questions.of(torch.tensor(fact[None]), side) for side in Side)
    expected = (trained.score(tail)[0, fact[2]] + trained.score(head)[0, fact[0]]) / 2
    assert fact_scores(trained, fact[None])[0] == pytest.approx(expected.item(), rel=1e-5)
    assert len(fact_scores(trained, trained.graph.test[:0])) == 0
    whole = fact_scores(trained, trained.graph.test)
    assert fact_scores(trained, trained.graph.test, block=7) == pytest.approx(whole, rel=1e-5)


def places_by_loop(trained: Trained, fact: tuple[int, int, int], known: set) -> list[float]:
    head, relation, tail = fact
    found = []
    for side in Side:
        anchor, answer = (head, tail) if side is Side.TAIL else (tail, head)
        question = Questions(*(torch.tensor([x]) for x in (anchor, relation, int(side))))
        scores = trained.score(question)[0]
        near = {f[2 if side is Side.TAIL else 0] for f in known if f[1] == relation} - {answer}
        ends = {(anchor, e) if side is Side.TAIL else (e, anchor): e for e in near}
        rivals = [e for (h, t), e in ends.items() if (h, relation, t) not in known]
        above = sum(float(scores[e] > scores[answer]) for e in rivals)
        found.append(1 + above + sum(float(scores[e] == scores[answer]) for e in rivals) / 2)
    return found


@pytest.mark.parametrize("tile", [50, 8_000_000])
def test_a_place_is_the_rank_among_entities_that_answer_such_questions(trained, tile, monkeypatch):
    monkeypatch.setattr(calibration, "TILE", tile)
    graph = trained.graph
    known = {tuple(fact) for fact in graph.train.tolist()}
    # Held-out facts, known ones, and pairs of entities that never stand where they do here.
    odd = np.array([(5, 0, 2), (2, 1, 5), (7, 1, 7)])
    facts = np.concatenate([graph.test[::9], graph.train[::40], odd])
    expected = [places_by_loop(trained, tuple(fact), known) for fact in facts.tolist()]
    found = places(trained, facts, graph.known("train"))
    np.testing.assert_allclose(found, expected)


def test_an_entity_where_nothing_like_it_stands_is_improbable(trained, fitted):
    graph = trained.graph
    towns, persons, things = (
        np.array([i for i, label in enumerate(graph.entities.labels) if label.startswith(kind)])
        for kind in ("town", "person", "thing")
    )
    likes = np.full(len(towns), graph.relations.find("likes"))
    strange = np.stack([towns, likes, things[: len(towns)]], axis=1)
    plain = np.stack([persons[: len(towns)], likes, things[: len(towns)]], axis=1)
    known = graph.known("train")
    assert is_foreign(known, strange).all()
    assert not is_foreign(known, plain).any()
    assert not is_foreign(known, graph.valid).any()
    assert fitted.foreign == pytest.approx(np.log(0.5 / (len(graph.valid) + 0.5)))
    assert fitted.probability(trained, strange).max() < 1e-3
    # The odds fall by facts beyond to one within, over pairs beyond to one within.
    pairs = graph.num_entities**2 / (len(persons) * len(things)) - 1
    within = replace(fitted, foreign=100.0).probability(trained, strange)  # never above it
    told = fitted.probability(trained, strange)
    odds = (told / (1 - told)) / (within / (1 - within))
    np.testing.assert_allclose(odds, np.exp(fitted.foreign) / pairs, rtol=1e-6)
    # With annotated negatives their number stands for that of the pairs.
    told = replace(fitted, negatives=True).probability(trained, strange)
    odds = (told / (1 - told)) / (within / (1 - within))
    np.testing.assert_allclose(odds, np.exp(fitted.foreign), rtol=1e-6)


def test_unlabeled_pairs_are_no_training_facts_but_of_their_entities(trained):
    graph = trained.graph
    drawn = draw_unlabeled(graph, seed=0)
    train_facts = {tuple(fact) for fact in graph.train.tolist()}
    assert not train_facts & {tuple(fact) for fact in drawn.tolist()}
    for relation in range(graph.num_relations):
        seen = graph.train[graph.train[:, 1] == relation]
        own = drawn[drawn[:, 1] == relation]
        assert set(own[:, 0]) <= set(seen[:, 0])
        assert set(own[:, 2]) <= set(seen[:, 2])


def test_predictions_carry_probability_and_margin(trained, fitted):
    asked = {"head": "person 0.0", "relation": "likes", "k": 3}
    bare = predict(trained, **asked)
    told = predict(trained, **asked, calibration=fitted)
    assert [a.probability for a in bare] == [None] * 3
    assert [a.tail for a in told] == [a.tail for a in bare]
    ids = [
        [trained.graph.entities.find(a.head), 1, trained.graph.entities.find(a.tail)] for a in told
    ]
    expected = fitted.probability(trained, np.array(ids))
    assert [a.probability for a in told] == pytest.approx(expected.tolist())
    assert told[0].margin == pytest.approx(told[0].score - told[1].score, abs=1e-5)
    everything = predict(trained, head="person 0.0", relation="likes", k=10**6)
    assert everything[-1].margin is None
    json.dumps([a._asdict() for a in told])
