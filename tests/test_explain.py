"""Explanations: rules in words, standings, analogues, influences, and what they are written as."""

import json
from dataclasses import replace
from itertools import product
from xml.etree import ElementTree as xml

import numpy as np
import pytest
import torch

from puda import explain as module
from puda.config import Config
from puda.data.graph import KnowledgeGraph
from puda.errors import LabelError, PudaError
from puda.explain import Answer, Explanation, Fact, Reason, explain
from puda.predict import predict
from puda.runs import Trained
from puda.scoring import build_model
from puda.types import Questions
from toy import family_tree, labels, ring

SVG = "{http://www.w3.org/2000/svg}"


def distmult(graph: KnowledgeGraph, rows: dict[str, list[float]]) -> Trained:
    """Give DistMult the rows by label, relations of ones: <h, r, t> is the product h . t."""
    dim = len(next(iter(rows.values())))
    config = Config.of({"scoring": {"name": "distmult", "dim": dim}})
    model = build_model(config.scoring, graph)
    with torch.no_grad():
        model.relations.fill_(1.0)
    entities = torch.tensor([rows.get(label, [0.0] * dim) for label in graph.entities.labels])
    return Trained(config, graph, model.eval(), entities)


def random_trained(graph: KnowledgeGraph, name: str = "complex", **options: object) -> Trained:
    """Draw a model that nobody trained, in double precision."""
    torch.manual_seed(0)
    config = Config.of({"scoring": {"name": name, "dim": 32, "options": options}})
    model = build_model(config.scoring, graph).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return Trained(config, graph, model, torch.randn(graph.num_entities, model.row_dim).double())


@pytest.fixture(scope="module")
def towns() -> Trained:
    """Score h * t with Athens 1, Berlin 2, Cairo 3, Delhi -1, Espoo 2."""
    graph = KnowledgeGraph.from_facts(
        [
            *(("Athens", "near", "Berlin"), ("Berlin", "near", "Athens")),
            *(("Cairo", "near", "Delhi"), ("Delhi", "near", "Cairo")),
            *(("Athens", "near", "Cairo"), ("Delhi", "rules", "Cairo")),
        ],
        valid=[("Athens", "near", "Espoo")],
        test=[("Berlin", "near", "Cairo")],
    )
    sizes = {"Athens": 1.0, "Berlin": 2.0, "Cairo": 3.0, "Delhi": -1.0, "Espoo": 2.0}
    return distmult(graph, {label: [size] for label, size in sizes.items()})


def test_a_rule_reads_as_a_sentence_with_paths_in_the_direction_of_their_facts(towns):
    # near-: (Athens, Berlin), (Berlin, Athens), (Cairo, Delhi) and (Delhi, Cairo) are right, and
    # (Cairo, Athens) is what we ask about. near- rules near-: (Cairo, Athens) alone.
    explanation = explain(towns, "Cairo", "near", "Athens")
    assert explanation.reasons[0] == Reason(
        rule="X near Y if Y near X",
        body=[Fact("Y", "near", "X")],
        support=4,
        cases=4,
        confidence=1.0,
        sampled=False,
        paths=[[Fact("Athens", "near", "Cairo")]],
    )
    assert str(explanation.reasons[0]) == "X near Y if Y near X: right in 100 % of 4 cases"


def test_a_chain_names_what_lies_between():
    graph = KnowledgeGraph.from_facts(
        [
            *(("a", "born in", "s"), ("v", "contains", "s"), ("v", "part of", "earth")),
            *(("b", "born in", "t"), ("w", "contains", "t"), ("w", "part of", "mars")),
            *(("d", "born in", "u"), ("w", "contains", "u"), ("a", "lives on", "earth")),
        ]
    )
    (reason,) = explain(random_trained(graph), "d", "lives on", "mars").reasons
    assert reason.rule == "X lives on Y if X born in A, B contains A and B part of Y"
    assert str(reason) == f"{reason.rule}: right in 50 % of 2 cases"
    assert reason.paths == [
        [Fact("d", "born in", "u"), Fact("w", "contains", "u"), Fact("w", "part of", "mars")]
    ]


def test_a_sample_and_a_single_case_are_called_so():
    reason = Reason("X r Y if Y r X", [Fact("Y", "r", "X")], 2, 3000, 2 / 3000, True, [])
    assert str(reason) == "X r Y if Y r X: right in 0.0667 % of 3,000 sampled cases"
    reason = Reason("X r Y if Y r X", [Fact("Y", "r", "X")], 1, 1, 1.0, False, [])
    assert str(reason) == "X r Y if Y r X: right in 100 % of 1 case"


def test_the_standing_of_both_answers_by_hand(towns):
    # Berlin near ?: Cairo 6, Berlin 4 (itself: left out), Espoo 4, Athens 2 (known), Delhi -2.
    # ? near Espoo: Cairo 6, Berlin 4, Espoo 4 (itself), Athens 2 (known), Delhi -2.
    explanation = explain(towns, "Berlin", "near", "Espoo")
    assert (explanation.split, explanation.score) == (None, 4.0)
    tail, head = explanation.tail, explanation.head
    assert (tail.rank, tail.candidates, tail.score, tail.num_known) == (1, 2, 4.0, 2)
    assert tail.known == [Answer("Cairo", 6.0), Answer("Athens", 2.0)]
    assert (head.rank, head.candidates, head.score, head.num_known) == (2, 3, 4.0, 1)
    assert head.known == [Answer("Athens", 2.0)]


def test_the_known_answers_shown_are_the_best_scored_and_the_answer_is_none_of_them(towns):
    # Athens near Berlin 2 (train), Cairo 3 (train), Espoo 2 (valid).
    explanation = explain(towns, "Athens", "near", "Berlin", k=1)
    assert (explanation.tail.num_known, explanation.tail.known) == (2, [Answer("Cairo", 3.0)])


def test_equals_share_their_mean_rank(towns):
    # Delhi rules ?: Cairo is known, Berlin and Espoo -2 are equal, Athens -1 is above.
    assert explain(towns, "Delhi", "rules", "Espoo").tail.rank == 2.5


@pytest.mark.parametrize(
    ("fact", "split"),
    [
        (("Athens", "near", "Berlin"), "train"),
        (("Athens", "near", "Espoo"), "valid"),
        (("Berlin", "near", "Cairo"), "test"),
        (("Cairo", "near", "Berlin"), None),
    ],
)
def test_a_known_fact_is_known_by_its_split(towns, fact, split):
    explanation = explain(towns, *fact)
    assert explanation.split == split
    first = explanation.to_text().splitlines()[0]
    assert (f"known ({split})" if split else "not in the graph") in first


def test_the_rank_of_what_is_not_known_is_that_of_predict():
    graph = family_tree(3)
    trained = random_trained(graph)
    known = set.union(*(labels(graph, split) for split in ("train", "valid", "test")))
    compared = 0
    for head, relation in product(graph.entities.labels[:4], graph.relations.labels):
        for answer in predict(trained, head=head, relation=relation, k=1000):
            assert (head, relation, answer.tail) not in known
            standing = explain(trained, head, relation, answer.tail, k=1).tail
            assert (standing.rank, standing.score) == (answer.rank, pytest.approx(answer.score))
            compared += 1
    assert compared > 100


def test_analogues_have_the_tail_and_the_nearest_heads_then_the_nearest_ends():
    # Cosines with h = (1, 0): near 0.8, far 0, away -1; with t = (0, 1): s 0.6, h 0, t 1.
    rows = {"h": [1.0, 0.0], "t": [0.0, 2.0], "near": [4.0, 3.0], "far": [0.0, 1.0]}
    rows |= {"away": [-3.0, 0.0], "s": [8.0, 6.0], "zero": [0.0, 0.0]}
    graph = KnowledgeGraph.from_facts(
        [
            *(("far", "r", "t"), ("near", "r", "t"), ("away", "r", "t")),
            *(("h", "r", "s"), ("h", "r", "zero"), ("far", "r", "h")),
            *(("h", "r", "t"), ("near", "other", "t")),
        ]
    )
    found = explain(distmult(graph, rows), "h", "r", "t", k=10).analogues
    assert [(str(a.fact), round(a.similarity, 6)) for a in found] == [
        ("near r t", 0.9),
        ("far r t", 0.5),
        ("away r t", 0.0),
        ("h r s", 0.8),
        ("h r zero", 0.5),
        ("far r h", 0.0),
    ]
    assert explain(distmult(graph, rows), "h", "r", "t", k=2).analogues == found[:2]


def mean_score(trained: Trained, fact: tuple[int, int, int], rows: torch.Tensor) -> torch.Tensor:
    """Score both questions of a fact with given rows of all entities."""
    questions, answers = Questions.both(torch.tensor([fact]))
    asked = trained.model.ask(questions, rows)
    return trained.model.match(asked, rows[answers].unsqueeze(1)).mean()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("distmult", {}),
        ("complex", {}),
        ("transe", {"norm": 2}),
        ("rotate", {}),
        ("convkb", {"filters": 3}),
        ("conve", {"filters": 2}),
        ("compgcn", {"filters": 2, "kernel": 3}),
    ],
)
@pytest.mark.parametrize("fact", [("a", "married to", "a*"), ("a0", "child of", "a0")])
def test_an_influence_is_the_fall_of_the_score_without_the_step_that_learned_the_fact(
    name, options, fact
):
    graph = family_tree(3)
    trained = random_trained(graph, name, **options)
    entity, relation = graph.entities.find, graph.relations.find
    head, name_of, tail = entity(fact[0]), relation(fact[1]), entity(fact[2])
    found = explain(trained, *fact, k=1000).influences
    influence = {(i.fact.head, i.fact.relation, i.fact.tail): i.influence for i in found}
    assert list(influence.values()) == sorted(influence.values(), reverse=True)
    assert len(influence) > 2 or (name == "transe" and head == tail)  # -|r|: moving h is all one

    rows, step = trained.rows, 1e-6
    before = mean_score(trained, (head, name_of, tail), rows).item()
    for other in labels(graph, "train") - {fact}:
        if not {*other[::2]} & {*fact[::2]}:
            assert other not in influence
            continue
        leaf = rows.clone().requires_grad_()
        ids = entity(other[0]), relation(other[1]), entity(other[2])
        (slope,) = torch.autograd.grad(mean_score(trained, ids, leaf), leaf)
        less = rows.clone()
        for x in {head, tail}:
            less[x] -= step * slope[x]
        fall = (before - mean_score(trained, (head, name_of, tail), less).item()) / step
        assert influence.get(other, 0.0) == pytest.approx(max(fall, 0.0), rel=1e-3, abs=1e-5)


def test_the_explained_fact_is_not_among_what_influences_it():
    graph = KnowledgeGraph.from_facts([("a", "r", "b"), ("a", "r", "c"), ("d", "r", "b")])
    trained = distmult(graph, {label: [1.0] for label in "abcd"})
    # s = a b, so ds/da = b = 1; s(f) = a c, ds(f)/da = c = 1: 1 * 1.
    influences = explain(trained, "a", "r", "b").influences
    assert [(str(i.fact), i.influence) for i in influences] == [("a r c", 1.0), ("d r b", 1.0)]


def test_of_a_hub_the_facts_with_the_most_similar_other_end_are_tried(monkeypatch):
    # s = h . t; a fact of h and x pulls h along x, by x . t in all. Large pulls most, but twin and
    # like are more like t, the one as a head, the other as a tail.
    rows = {"h": [1.0, 0.0], "t": [1.0, 1.0], "large": [9.0, 0.0], "no": [-1.0, -1.0]}
    rows |= {"like": [1.0, 1.1], "twin": [1.0, 1.0]}
    graph = KnowledgeGraph.from_facts(
        [("h", "r", "large"), ("h", "r", "like"), ("twin", "r", "h"), ("h", "r", "no")],
        test=[("h", "r", "t")],
    )
    trained = distmult(graph, rows)
    every = [str(i.fact) for i in explain(trained, "h", "r", "t").influences]
    assert every == ["h r large", "h r like", "twin r h"]
    monkeypatch.setattr(module, "NEAREST", 2)
    assert [str(i.fact) for i in explain(trained, "h", "r", "t").influences] == every[1:]


def test_an_entity_without_training_facts_has_no_reasons():
    graph = KnowledgeGraph.from_facts([("a", "r", "b")], test=[("a", "r", "new"), ("x", "q", "b")])
    explanation = explain(random_trained(graph), "new", "r", "x")
    assert (explanation.reasons, explanation.influences) == ([], [])
    assert [str(a.fact) for a in explanation.analogues] == ["a r b"]
    assert "Rules that lead to it:\n  none\n" in explanation.to_text()
    assert boxes(explanation) == {"new", "x"}
    unseen = explain(random_trained(graph), "a", "q", "b")
    assert unseen.analogues == []


def test_a_loop_is_explained_by_loops():
    facts = [(x, relation, x) for x in "abc" for relation in ("knows", "trusts")]
    graph = KnowledgeGraph.from_facts(
        [*facts, ("d", "trusts", "d"), ("d", "has", "e"), ("e", "of", "d")]
    )
    explanation = explain(random_trained(graph), "d", "knows", "d")
    assert [str(reason) for reason in explanation.reasons] == [
        "X knows X if X trusts X: right in 100 % of 3 cases"
    ]
    assert explanation.tail.candidates == 5  # `knows` has loops: d is a candidate
    assert boxes(explanation) == {"d"}


def boxes(explanation: Explanation) -> set[str]:
    """Return the entities drawn: their labels have no halo, and stand in boxes of their own."""
    tree = xml.fromstring(explanation.to_svg())
    found = [t.findtext(f"{SVG}title") for t in tree.iter(f"{SVG}text") if "stroke" not in t.attrib]
    places = {(box.get("x"), box.get("y")) for box in tree.iter(f"{SVG}rect") if box.get("rx")}
    assert len(places) == len(found)
    return {*found}


def test_the_picture_shows_the_fact_dashed_and_each_fact_of_the_first_paths_once():
    explanation = explain(random_trained(family_tree(3)), "a00", "child of", "a0", k=30)
    assert {len(reason.body) for reason in explanation.reasons} == {1, 2, 3}
    first = [step for reason in explanation.reasons for step in reason.paths[0]]
    drawn = {explanation.fact, *first}
    assert len(first) > len(drawn) - 1  # some facts are in several paths
    assert boxes(explanation) == {e for step in first for e in (step.head, step.tail)}
    tree = xml.fromstring(explanation.to_svg())
    arrows = [path for path in tree.iter(f"{SVG}path") if path.get("marker-end")]
    assert len({path.get("d") for path in arrows}) == len(arrows) == len(drawn)
    assert [path.get("stroke-dasharray") is not None for path in arrows].count(True) == 1
    said = [t.findtext(f"{SVG}title") for t in tree.iter(f"{SVG}text") if "stroke" in t.attrib]
    assert sorted(said) == sorted(step.relation for step in drawn)


def test_the_picture_is_the_same_every_time():
    graph = ring()
    one, other = (
        explain(random_trained(graph), "s01", "previous", "s00").to_svg() for _ in range(2)
    )
    assert one == other


def test_odd_labels_are_escaped_and_long_ones_shortened():
    odd, long = '<b> & "c"', "the quick brown fox jumps over the dog"
    graph = KnowledgeGraph.from_facts([(odd, long, "x"), ("y", "s", odd)])
    explanation = explain(random_trained(graph), odd, long, "y")
    drawn = xml.fromstring(explanation.to_svg())
    texts = {text.text: text.findtext(f"{SVG}title") for text in drawn.iter(f"{SVG}text")}
    assert texts == {odd: odd, "y": "y", "the quick …ver the dog": long}
    bell = replace(explanation, fact=Fact("a\x07\x00b\ud800", "s", odd)).to_svg()
    assert "a  b " in {text.text for text in xml.fromstring(bell).iter(f"{SVG}text")}


def test_an_explanation_survives_json():
    explanation = explain(random_trained(family_tree(3)), "a00", "sibling of", "a01")
    written = explanation.to_dict()
    assert json.loads(json.dumps(written)) == written
    assert written["fact"] == {"head": "a00", "relation": "sibling of", "tail": "a01"}
    for part in ("reasons", "analogues", "influences"):
        assert written[part], part
    assert {"rank", "candidates", "score", "num_known", "known"} == written["tail"].keys()


def test_the_text_says_it_all(towns):
    lines = explain(towns, "Cairo", "near", "Athens", k=2).to_text().splitlines()
    assert lines[:7] == [
        "Cairo near Athens: not in the graph, score 3",
        "  Cairo near ?: rank 3 of 3; other known answers: 1, Delhi (-3)",
        "  ? near Athens: rank 1 of 3; other known answers: 1, Berlin (2)",
        "Rules that lead to it:",
        "  X near Y if Y near X: right in 100 % of 4 cases",
        "    Athens near Cairo",
        "Known facts like it:",
    ]
    assert "  Berlin near Athens (similarity 1.000)" in lines
    assert "Facts that raise its score:" in lines


def test_no_more_than_k_of_each_are_given():
    trained = random_trained(family_tree(4))
    whole = explain(trained, "a00", "child of", "a0", k=50)
    for k in (1, 3):
        some = explain(trained, "a00", "child of", "a0", k=k)
        assert some.reasons == whole.reasons[:k]
        assert some.analogues == whole.analogues[:k]
        assert some.influences == whole.influences[:k]
        assert len(whole.influences) > k < len(whole.analogues)


def test_an_unknown_label_names_what_it_is_and_the_nearest(towns):
    with pytest.raises(LabelError, match="no entity 'Cario'.*'Cairo'"):
        explain(towns, "Cario", "near", "Athens")
    with pytest.raises(LabelError, match="no relation 'neer'.*'near'"):
        explain(towns, "Cairo", "neer", "Athens")
    with pytest.raises(LabelError, match="no entity 'Athems'.*'Athens'"):
        explain(towns, "Cairo", "near", "Athems")


def test_labels_may_be_typed_without_case_or_only_begun(towns):
    assert explain(towns, "cairo", "NEAR", "Ath").fact == Fact("Cairo", "near", "Athens")


@pytest.mark.parametrize("k", [0, -1])
def test_less_than_one_reason_cannot_be_asked_for(towns, k):
    with pytest.raises(PudaError, match=f"k = {k}: ask for at least one"):
        explain(towns, "Cairo", "near", "Athens", k=k)


def test_a_score_that_is_not_finite_raises(towns):
    broken = Trained(
        towns.config, towns.graph, towns.model, torch.full_like(towns.entities, np.nan)
    )
    with pytest.raises(PudaError, match="finite"):
        explain(broken, "Cairo", "near", "Athens")
