"""Who may ask, from where, and what browsers are told."""

import pytest
from fastapi.testclient import TestClient

from board import missing
from puda.serve.app import PAGE, create_app
from puda.serve.guard import MAX_BODY

TOKEN = "a-token-of-some-length"
START = "http://127.0.0.1:8000/"
SAID = dict(zip(("head", "relation", "tail"), missing(4), strict=True)) | {"verdict": "accept"}


def post(client, **headers: str) -> int:
    return client.post("runs/board/verdicts", json=SAID, headers=headers).status_code


def test_names_that_are_not_ours_are_not_answered(client):
    for host in ("127.0.0.1", "127.0.0.1:8000", "localhost:9", "[::1]:8000", "LOCALHOST"):
        assert client.get("runs", headers={"Host": host}).status_code == 200
    for host in ("evil.example", "127.0.0.1.evil.example:8000", "", "localhost.evil.example"):
        assert client.get("runs", headers={"Host": host}).status_code == 421
        assert client.get(START, headers={"Host": host}).status_code == 421


def test_verdicts_of_other_sites_are_refused(client):
    assert post(client) == 201
    assert post(client, Origin="http://127.0.0.1:8000") == 201
    assert post(client, **{"Sec-Fetch-Site": "same-origin"}) == 201
    assert post(client, Origin="http://evil.example") == 403
    assert post(client, Origin="http://127.0.0.1:9") == 403
    assert post(client, Origin="null") == 403
    assert post(client, **{"Sec-Fetch-Site": "cross-site"}) == 403
    assert client.get("runs/board/verdicts").json()["total"] == 1


def test_other_sites_read_nothing(client):
    answer = client.get("runs", headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 403
    allowed = client.get("runs", headers={"Origin": "http://evil.example"})
    assert "access-control-allow-origin" not in allowed.headers
    asked = client.options("runs", headers={"Origin": "http://evil.example"})
    assert asked.status_code == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_what_a_form_can_send_is_no_verdict(client, kind):
    answer = client.post("runs/board/verdicts", content="{}", headers={"Content-Type": kind})
    assert answer.status_code == 415


def test_a_body_is_bounded_whether_or_not_it_says_its_length(client):
    headers = {"Content-Type": "application/json"}

    def pieces():
        for _ in range(MAX_BODY // 1000 + 2):
            yield b" " * 1000

    for body in (b" " * (MAX_BODY + 1), pieces()):
        answer = client.post("runs/board/verdicts", content=body, headers=headers)
        assert answer.status_code == 413


def test_without_the_token_the_api_is_shut(served, store):
    app = create_app({"board": served}, store, hosts=None, token=TOKEN)
    with TestClient(app, base_url="http://elsewhere.example/api/v1/") as client:
        assert client.get("runs").status_code == 401
        assert client.get("runs", headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert client.get("runs", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert client.get("openapi.json").status_code == 401
        assert client.get(START).status_code == 200  # it holds no data, and asks
        assert client.get("runs", headers={"Authorization": "Bearer ä".encode()}).status_code == 401


def test_the_page_runs_no_script_and_no_style_but_its_own(client):
    answer = client.get(START)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    text = answer.text
    assert "style=" not in text and "<style" not in text and "onclick" not in text
    assert text.count("<script") == 1 and 'src="main.js"' in text


def test_the_page_needs_nothing_from_elsewhere():
    for name, content in PAGE.items():
        links = content.replace(b"http://www.w3.org/2000/svg", b"")
        assert b"http://" not in links and b"https://" not in links and b"//cdn" not in links, name


def test_labels_never_become_markup():
    for name, content in PAGE.items():
        for way in (b"innerHTML", b"outerHTML", b"insertAdjacentHTML", b"document.write", b"eval("):
            assert way not in content, name


@pytest.mark.parametrize("path", ["..%2f..%2fapp.py", "%2e%2e/app.py", "app.py", "/etc/passwd"])
def test_no_path_leads_to_a_file(client, path):
    answer = client.get(f"{START}{path}")
    assert answer.status_code == 404


def test_assets_have_their_types(client):
    kinds = {"main.js": "javascript", "style.css": "text/css", "icon.svg": "image/svg+xml"}
    for path, kind in kinds.items():
        answer = client.get(START + path)
        assert answer.status_code == 200 and kind in answer.headers["content-type"]


def test_what_no_one_expected_is_told_without_its_insides(served, store, monkeypatch, caplog):
    def fail(*given, **named):
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr(served, "entity", fail)
    app = create_app({"board": served}, store)
    start = "http://127.0.0.1:8000/api/v1/"
    with TestClient(app, base_url=start, raise_server_exceptions=False) as client:
        answer = client.get("runs/board/entity", params={"entity": "person 1"})
    assert answer.status_code == 500
    assert answer.json() == {"error": "an unexpected error: see what puda serve printed"}
    assert "a secret of the inside" in caplog.text
