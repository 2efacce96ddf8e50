"""The API as a client meets it."""

import math
import threading
import time

import pytest

from board import DISLIKES, IMAGE, SCRIPT, SIZE, board, missing, person
from puda.serve.answers import Answers
from puda.serve.desk import Desk
from puda.serve.jobs import KEPT, WAITING
from puda.serve.review import QUESTIONS, Item, information, spread
from puda.verdicts import read, settle

HEAD, RELATION, TAIL = missing(4)


def verdict(client, **values: str):
    said = {"head": HEAD, "relation": RELATION, "tail": TAIL, "verdict": "accept", "author": "ann"}
    return client.post("runs/board/verdicts", json=said | values)


def get(client, path: str, **params: object):
    answer = client.get(f"runs/board/{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_runs_are_listed_with_what_they_are(client):
    (run,) = client.get("runs").json()
    assert (run["name"], run["graph"], run["entities"], run["calibrated"]) == (
        "board",
        "board",
        2 * SIZE,
        True,
    )
    assert 0 < run["mrr"] <= 1


def test_search_finds_through_a_typo(client):
    assert get(client, "search", text="preson 11")[0]["label"] == "person 11"
    assert get(client, "search", text="lik", kind="relation")[0]["label"] == "likes"
    assert get(client, "search", text="script")[0]["label"] == SCRIPT


def test_a_tail_question_has_the_missing_fact_on_top(client, run):
    found = get(client, "predict", head=HEAD, relation=RELATION)
    best = found["answers"][0]
    assert (best["tail"], best["known"], best["rank"]) == (TAIL, False, 1)
    assert best["probability"] == pytest.approx(
        run.predict(head=HEAD, relation=RELATION, k=1)[0].probability, abs=1e-4
    )
    assert found["promise"] == run.promise(head=HEAD, relation=RELATION)


def test_a_head_question_and_a_relation_question_are_answered(client):
    assert get(client, "predict", tail=TAIL, relation=RELATION)["answers"][0]["head"] == HEAD
    found = get(client, "predict", head=HEAD, tail=TAIL)
    assert [each["relation"] for each in found["answers"]] == ["likes", DISLIKES]


def test_pages_follow_each_other(client):
    whole = get(client, "predict", head=HEAD, relation=RELATION, k=8)
    pages = [get(client, "predict", head=HEAD, relation=RELATION, k=4, offset=i) for i in (0, 4)]
    assert [each for page in pages for each in page["answers"]] == whole["answers"]
    assert pages[0]["more"]
    last = get(client, "predict", head=HEAD, relation=RELATION, offset=2 * SIZE)
    assert (last["answers"], last["more"]) == ([], False)


def test_known_facts_and_less_probable_ones_are_shown_on_request_only(client):
    known = get(client, "predict", head=HEAD, relation=RELATION, k=50, include_known=True)
    assert sum(each["known"] for each in known["answers"]) == SIZE // 2 - 1
    all_of_them = get(client, "predict", head=HEAD, relation=RELATION, k=20)["answers"]
    bound = sorted(each["probability"] for each in all_of_them)[-3]
    shown = get(client, "predict", head=HEAD, relation=RELATION, k=20, minimum=bound)["answers"]
    assert shown == [each for each in all_of_them if each["probability"] >= bound]


@pytest.mark.parametrize(
    ("params", "status", "reason"),
    [
        ({"head": HEAD}, 400, "give two of head, relation and tail"),
        ({"head": HEAD, "relation": "likes", "tail": TAIL}, 400, "give two of"),
        ({"head": "nobody", "relation": "likes"}, 404, "no entity 'nobody'"),
        ({"head": "person 1", "relation": "loathes"}, 404, "no relation 'loathes'"),
        ({"head": HEAD, "relation": "likes", "k": 101}, 422, "k: "),
        ({"head": HEAD, "relation": "likes", "offset": 10**30}, 422, "offset: "),
        ({"head": HEAD, "relation": "likes", "minimum": "nan"}, 422, "minimum: "),
        ({"head": "x" * 5000, "relation": "likes"}, 422, "head: "),
    ],
)
def test_what_cannot_be_answered_says_why(client, params, status, reason):
    answer = client.get("runs/board/predict", params=params)
    assert answer.status_code == status
    assert answer.json()["error"].startswith(reason)


@pytest.mark.parametrize("path", ["runs/none/predict", "jobs/none", "nothing", "runs/..%2F..%2F"])
def test_what_is_not_there_is_404(client, path):
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.json()["error"]


def test_an_explanation_is_that_of_the_run(client, run):
    found = get(client, "explain", head=HEAD, relation=RELATION, tail=TAIL, k=3)
    assert found == run.explain(HEAD, RELATION, TAIL, k=3).to_dict()


def test_an_entity_shows_its_facts_those_like_it_and_what_it_lacks(client):
    found = get(client, "entity", entity=IMAGE, k=5)
    assert (found["entity"], found["num_facts"], len(found["facts"])) == (IMAGE, SIZE - 1, 5)
    assert {each["entity"] for each in found["similar"][:5]} <= {person(i) for i in range(1, 24, 2)}
    rest = get(client, "entity", entity=IMAGE, k=100, offset=5)
    assert len(rest["facts"]) == SIZE - 6
    predicted = get(client, "entity/predictions", entity=IMAGE)
    assert predicted[0]["tail"] == missing(7)[2]
    chances = [each["probability"] for each in predicted]
    assert chances == sorted(chances, reverse=True)
    only = get(client, "entity/predictions", entity=IMAGE, relation=DISLIKES)
    assert {each["relation"] for each in only} == {DISLIKES}


def test_metrics_are_all_that_was_measured(client, run):
    found = get(client, "metrics")
    assert found["metrics"] == run.metrics
    assert [point["epoch"] for point in found["curve"]] == [4, 8, 12]
    assert found["settings"]["scoring"]["name"] == "distmult"


def test_reliability_counts_every_candidate_once(client):
    found = get(client, "reliability")
    assert sum(each["count"] for each in found["bins"]) > SIZE
    assert 0 <= found["error"] <= 1


def test_a_verdict_is_kept_and_changed_by_its_author_alone(client):
    assert verdict(client).status_code == 201
    assert verdict(client, author="bob", verdict="reject", note="seen otherwise").status_code == 201
    assert verdict(client, verdict="unsure").status_code == 201
    found = get(client, "verdicts", head=HEAD)
    assert [(each["author"], each["verdict"]) for each in found["verdicts"]] == [
        ("ann", "unsure"),
        ("bob", "reject"),
    ]
    assert get(client, "verdicts", author="bob")["total"] == 1
    assert get(client, "verdicts", head="person 2")["total"] == 0


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ({"verdict": "perhaps"}, 422),
        ({"head": "nobody"}, 404),
        ({"note": "x" * 2001}, 422),
        ({"author": "a\0b"}, 422),
        ({"more": "fields"}, 422),
    ],
)
def test_a_verdict_that_is_none_is_not_kept(client, values, status):
    assert verdict(client, **values).status_code == status
    assert get(client, "verdicts")["total"] == 0


def test_an_export_is_what_training_reads(client, tmp_path):
    head, relation, tail = missing(7)
    verdict(client, head=head, relation=relation, tail=tail, note='tab\t"quote"')
    for format in ("tsv", "jsonl"):
        answer = client.get("runs/board/verdicts/export", params={"format": format})
        assert f"verdicts.{format}" in answer.headers["content-disposition"]
        path = tmp_path / f"kept.{format}"
        path.write_bytes(answer.content)
        assert settle(read(path)).accepted == [missing(7)]


def test_the_queue_leaves_out_what_was_judged_and_what_the_asker_skipped(client):
    first = get(client, "queue", k=3)
    facts = [{part: each[part] for part in ("head", "relation", "tail")} for each in first]
    verdict(client, **facts[0], verdict="reject")
    verdict(client, **facts[1], verdict="unsure")
    for author, shown in (("ann", facts[2:]), ("bob", facts[1:])):
        again = get(client, "queue", k=50, author=author)
        left = [{part: each[part] for part in ("head", "relation", "tail")} for each in again]
        assert [fact for fact in facts if fact in left] == shown
    known = {tuple(fact) for split in ("train", "valid", "test") for fact in _labels(split)}
    assert not {tuple(fact.values()) for fact in facts} & known


def _labels(split: str):
    graph = board()
    for h, r, t in graph.facts(split).tolist():
        yield graph.entities.labels[h], graph.relations.labels[r], graph.entities.labels[t]


def test_the_queue_of_a_relation_has_no_other(client):
    found = get(client, "queue", relation="likes", k=20)
    assert {each["relation"] for each in found} == {"likes"}


def test_information_is_most_at_even_odds():
    assert information(0.5) == pytest.approx(1)
    assert information(0.9) == pytest.approx(-0.9 * math.log2(0.9) - 0.1 * math.log2(0.1))
    assert information(0.0) == pytest.approx(0, abs=1e-9)


def test_relations_take_turns_in_the_queue():
    items = [Item(("a", "r", str(i)), 0.5, 1.0 - i / 100) for i in range(3)]
    items.append(Item(("a", "s", "x"), 0.7, 0.8))
    assert [item.fact[1] for item in spread(items)] == ["r", "s", "r", "r"]


def test_the_queue_ends_when_all_is_judged(served):
    asked = []
    assert served.reviews.next(5, lambda fact: not asked.append(fact), None) == []
    assert len(asked) >= QUESTIONS


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("queue", {}),
        ("reliability", {}),
        ("predict", {"head": HEAD, "relation": RELATION, "minimum": 0.5}),
    ],
)
def test_a_run_without_probabilities_says_how_to_get_them(
    client, run, served, monkeypatch, path, params
):
    answers = Answers(run)
    answers.calibration = None
    monkeypatch.setattr(served, "answers", answers)
    monkeypatch.setattr(served, "desk", Desk(answers))
    monkeypatch.delitem(served.__dict__, "reliability", raising=False)
    answer = client.get(f"runs/board/{path}", params=params)
    assert answer.status_code == 409
    assert "puda calibrate" in answer.json()["error"]
    plain = get(client, "predict", head=HEAD, relation=RELATION)["answers"]
    assert plain[0]["tail"] == TAIL and plain[0]["probability"] is None


def finish(client, job: dict[str, object]) -> dict[str, object]:
    for _ in range(600):
        now = client.get(f"jobs/{job['id']}").json()
        if now["state"] not in ("waiting", "running"):
            return now
        time.sleep(0.05)
    raise AssertionError(f"still {now['state']}")


def test_a_completion_runs_behind_the_scenes_and_its_facts_can_be_taken_along(client, run):
    answer = client.post("runs/board/jobs", json={"top": 30, "relations": ["likes"]})
    assert answer.status_code == 202
    job = finish(client, answer.json())
    assert (job["state"], job["done"], job["of"], job["facts"]) == ("done", 1, 1, 30)
    expected = run.complete(top=30, relations=["likes"])
    page = client.get(f"jobs/{job['id']}/facts", params={"k": 2, "offset": 1}).json()
    assert page["total"] == 30
    assert [each["tail"] for each in page["facts"]] == expected["tail"][1:3].to_list()
    text = client.get(f"jobs/{job['id']}/export").text
    assert text.splitlines()[1].startswith("\t".join(expected.row(0)[:3]))
    assert client.get("jobs").json()[0] == job


@pytest.mark.parametrize(
    ("wanted", "status"),
    [({"top": 0}, 422), ({"top": 10**9}, 422), ({"relations": ["loathes"]}, 404), ({"x": 1}, 422)],
)
def test_a_job_that_cannot_be_is_refused(client, wanted, status):
    assert client.post("runs/board/jobs", json=wanted).status_code == status


def test_jobs_are_bounded_and_can_be_cancelled(client, served, monkeypatch):
    gate = threading.Event()

    def complete(*, listener, **wanted):
        gate.wait(30)
        listener({"done": 1, "of": 2})

    monkeypatch.setattr(served.run, "complete", complete)
    ids = [client.post("runs/board/jobs", json={}).json()["id"] for _ in range(WAITING)]
    assert client.post("runs/board/jobs", json={}).status_code == 429
    for id in ids:
        client.delete(f"jobs/{id}")
    gate.set()
    assert [finish(client, {"id": id})["state"] for id in ids] == ["cancelled"] * WAITING
    monkeypatch.undo()
    for _ in range(KEPT):
        finish(client, client.post("runs/board/jobs", json={"top": 1}).json())
    assert len(client.get("jobs").json()) == KEPT
