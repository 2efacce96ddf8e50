"""Probabilities of a run: learned from held-out facts, and true of other held-out facts."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from puda import calibrate as calibration
from puda.calibrate import Calibration, calibrate, check, cover, is_foreign
from puda.errors import PudaError, RunError
from puda.evaluation.ranking import rank
from puda.pairs import draw_pairs
from puda.predict import predict
from puda.runs import RunFolder, Trained


@pytest.fixture(scope="module")
def trained(trained_clubs) -> Trained:
    return trained_clubs


@pytest.fixture(scope="module")
def fitted(trained) -> Calibration:
    return calibrate(trained)


def test_probabilities_are_shares_and_facts_have_higher_ones_than_others(trained, fitted):
    graph = trained.graph
    true = fitted.probability(trained, graph.test, known=("train", "valid"))
    other = fitted.probability(
        trained, draw_pairs(trained, size=2000, seed=7).facts, known=("train", "valid")
    )
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
    assert by_label["home"][0] == 1
    assert by_label["likes"][0] != 1
    assert len(fitted.prior) == 2 and all(0 <= prior <= 1 for prior in fitted.prior)


def test_as_many_pairs_are_expected_to_be_true_as_the_prior_says(trained, fitted):
    graph = trained.graph
    pairs = draw_pairs(trained, size=calibration.SAMPLE, seed=0)
    found = fitted.probability(trained, pairs.facts, known=("train",))
    expected = []
    for relation in range(2):
        own = pairs.facts[:, 1] == relation
        expected.append((found[own] * pairs.number[own]).sum())
        share = expected[-1] / pairs.number[own].sum()
        assert share == pytest.approx(fitted.prior[relation], rel=0.4)
    assert sum(expected) >= 0.8 * len(graph.valid)


def test_the_facts_that_are_missing_are_counted(trained, fitted):
    graph = trained.graph
    assert len(graph.valid) <= fitted.missing < 2 * len(graph.test)
    hidden = np.random.default_rng(0).random(len(graph.train)) < 0.4
    thinner = replace(graph, train=graph.train[~hidden])
    found = calibrate(replace(trained, graph=thinner))  # a model that has seen them knows them
    assert 0.7 < found.missing / (hidden.sum() + len(graph.test)) < 2


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
    rng = np.random.default_rng(3)
    untrue = np.stack([graph.train[:, 0], graph.train[:, 1], rng.permutation(graph.train[:, 2])], 1)
    untrue = untrue[~graph.known("train", "valid", "test").holds(untrue)]
    with_negatives = replace(graph, negatives={"valid": untrue[::2], "test": untrue[1::2]})
    judge = replace(trained, graph=with_negatives)
    found = calibrate(judge)
    assert found.negatives and found.missing is None
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
