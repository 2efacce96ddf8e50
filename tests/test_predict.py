"""Questions by label, answers in order of plausibility."""

import pytest
import torch

from puda.config import Config
from puda.data.graph import KnowledgeGraph
from puda.errors import LabelError, PudaError
from puda.predict import predict
from puda.runs import Trained
from puda.scoring import build_model

# Four towns on one axis and one relation of weight 1 each for DistMult with d = 1, so that the
# score of <h, r, t> is h r t with
#   Athens 1, Berlin 2, Cairo 3, Delhi -1;  near 1, twinned with 2.
SIZES = {"Athens": 1.0, "Berlin": 2.0, "Cairo": 3.0, "Delhi": -1.0}
WEIGHTS = {"near": 1.0, "twinned with": 2.0}


@pytest.fixture(scope="module")
def trained() -> Trained:
    graph = KnowledgeGraph.from_facts(
        [("Athens", "near", "Berlin"), ("Delhi", "twinned with", "Cairo")],
        valid=[("Athens", "near", "Athens")],
        test=[("Berlin", "near", "Cairo")],
    )
    config = Config.of({"scoring": {"name": "distmult", "dim": 1}})
    model = build_model(config.scoring, graph)
    with torch.no_grad():
        for i, label in enumerate(graph.relations.labels):
            model.relations[i] = WEIGHTS[label]
    entities = torch.tensor([[SIZES[label]] for label in graph.entities.labels])
    return Trained(config, graph, model.eval(), entities)


def shown(answers, part):
    return [(answer.rank, getattr(answer, part), answer.score, answer.known) for answer in answers]


def test_a_tail_question_leaves_out_what_train_valid_and_test_know(trained):
    # <Athens, near, t> = t: Cairo 3, Berlin 2 (train), Athens 1 (valid), Delhi -1.
    answers = predict(trained, head="Athens", relation="near")
    assert shown(answers, "tail") == [(1, "Cairo", 3.0, False), (2, "Delhi", -1.0, False)]
    assert {(answer.head, answer.relation) for answer in answers} == {("Athens", "near")}


def test_known_facts_are_shown_in_their_place_when_asked_for(trained):
    answers = predict(trained, head="Athens", relation="near", include_known=True)
    assert shown(answers, "tail") == [
        (1, "Cairo", 3.0, False),
        (2, "Berlin", 2.0, True),
        (3, "Athens", 1.0, True),
        (4, "Delhi", -1.0, False),
    ]


def test_a_fact_of_test_is_known_too(trained):
    # <Berlin, near, t> = 2 t; Cairo is in test.
    answers = predict(trained, head="Berlin", relation="near")
    assert shown(answers, "tail") == [
        (1, "Berlin", 4.0, False),
        (2, "Athens", 2.0, False),
        (3, "Delhi", -2.0, False),
    ]


def test_a_head_question_is_answered_by_heads(trained):
    # <h, twinned with, Cairo> = h 2 3 = 6 h: Berlin 12, Athens 6, Delhi -6 (train). Cairo would
    # have 18, but nothing is twinned with itself, whereas Athens is near itself (valid).
    answers = predict(trained, relation="twinned with", tail="Cairo")
    assert shown(answers, "head") == [(1, "Berlin", 12.0, False), (2, "Athens", 6.0, False)]
    assert {(answer.relation, answer.tail) for answer in answers} == {("twinned with", "Cairo")}
    last = predict(trained, relation="twinned with", tail="Cairo", include_known=True)[-1]
    assert (last.head, last.score, last.known, last.rank) == ("Delhi", -6.0, True, 3)


def test_a_relation_question_is_answered_by_relations(trained):
    # <Athens, r, Berlin> = 2 r: twinned with 4, near 2 (train).
    answers = predict(trained, head="Athens", tail="Berlin")
    assert shown(answers, "relation") == [(1, "twinned with", 4.0, False)]
    everything = predict(trained, head="Athens", tail="Berlin", include_known=True)
    assert shown(everything, "relation") == [
        (1, "twinned with", 4.0, False),
        (2, "near", 2.0, True),
    ]
    assert {(answer.head, answer.tail) for answer in everything} == {("Athens", "Berlin")}


def test_a_relation_question_knows_the_direction_of_a_fact(trained):
    # <Berlin, near, Athens> is not known, <Athens, near, Berlin> is.
    answers = predict(trained, head="Berlin", tail="Athens")
    assert [answer.relation for answer in answers] == ["twinned with", "near"]


def test_a_relation_is_scored_by_the_mean_of_its_two_questions():
    # ComplEx with reciprocals, d = 2 (one complex number): <h, r, t> is Re(h r conj t) for the
    # tail question and Re(t r' conj h) for the head question.
    # h = 1 + 0i, t = 0 + 2i; r = 0 + 1i: Re(i * -2i) = 2; r' = 0 - 3i: Re(2i * -3i) = 6; mean 4.
    graph = KnowledgeGraph.from_facts([("h", "r", "t"), ("t", "r", "h")])
    config = Config.of({"scoring": {"name": "complex", "dim": 2}})
    model = build_model(config.scoring, graph)
    with torch.no_grad():
        model.relations.copy_(torch.tensor([[0.0, 1.0], [0.0, -3.0]]))
    trained = Trained(config, graph, model.eval(), torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    (answer,) = predict(trained, head="h", tail="t", include_known=True)
    assert answer.score == pytest.approx(4.0)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_the_first_k_are_those_of_the_whole_list(trained, k):
    whole = predict(trained, head="Cairo", relation="near", k=100)
    assert len(whole) == 4
    assert predict(trained, head="Cairo", relation="near", k=k) == whole[:k]
    assert [answer.rank for answer in whole] == [1, 2, 3, 4]
    assert [a.score for a in whole] == sorted((a.score for a in whole), reverse=True)


def test_k_beyond_the_candidates_gives_them_all(trained):
    assert len(predict(trained, head="Athens", relation="near", k=10**9)) == 2
    assert len(predict(trained, head="Athens", tail="Delhi", k=10**9)) == 2


def test_when_everything_is_known_there_is_nothing_to_predict():
    graph = KnowledgeGraph.from_facts([(h, "r", t) for h in "ab" for t in "ab"])
    config = Config.of({"scoring": {"name": "distmult", "dim": 2}})
    trained = Trained(config, graph, build_model(config.scoring, graph), torch.ones(2, 2))
    assert predict(trained, head="a", relation="r") == []
    assert len(predict(trained, head="a", relation="r", include_known=True)) == 2


@pytest.mark.parametrize("head", ["athens", "ATHENS", " Athens ", "Ath", "a"])
def test_labels_may_be_typed_without_case_or_only_begun(trained, head):
    answers = predict(trained, head=head, relation="TWIN")
    assert {(a.head, a.relation) for a in answers} == {("Athens", "twinned with")}


def test_an_unknown_label_names_what_it_is_and_the_nearest(trained):
    with pytest.raises(LabelError, match="no entity 'Cario'.*'Cairo'"):
        predict(trained, head="Cario", relation="near")
    with pytest.raises(LabelError, match="no relation 'neer'.*'near'"):
        predict(trained, head="Cairo", relation="neer")
    with pytest.raises(LabelError, match="no entity ''"):
        predict(trained, head="", relation="near")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"head": "Athens"},
        {"relation": "near"},
        {"tail": "Cairo"},
        {"head": "Athens", "relation": "near", "tail": "Cairo"},
    ],
)
def test_exactly_two_parts_must_be_given(trained, given):
    with pytest.raises(PudaError, match="give two of head, relation and tail"):
        predict(trained, **given)


@pytest.mark.parametrize("k", [0, -1])
def test_less_than_one_answer_cannot_be_asked_for(trained, k):
    with pytest.raises(PudaError, match=f"k = {k}: ask for at least one"):
        predict(trained, head="Athens", relation="near", k=k)


@pytest.mark.parametrize("given", [{"relation": "near"}, {"tail": "Berlin"}])
def test_a_score_that_is_not_finite_raises_instead_of_ranking_first(trained, given):
    broken = Trained(
        trained.config, trained.graph, trained.model, torch.full_like(trained.entities, torch.nan)
    )
    with pytest.raises(PudaError, match="finite"):
        predict(broken, head="Cairo", **given)
