"""The page in a browser, as a person works with it. Needs Debian's chromium."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect, sync_playwright

import puda
from board import IMAGE, SCRIPT, board, missing
from serving import started

CHROMIUM = shutil.which("chromium")
HEAD, RELATION, TAIL = missing(4)
SHORT = {
    "scoring": {"name": "distmult", "dim": 4},
    "training": {"epochs": 1, "validate_every": 1, "threads": 1},
    "generator": {"num_synthetic": 0},
}

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no chromium here: apt-get install chromium"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(run, tmp_path_factory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("verdicts") / "verdicts.sqlite"
    with started(run.path, "--verdicts", place) as (_, address):
        yield address


@pytest.fixture
def page(browser, address) -> Iterator[Page]:
    """A page at the address, of which nothing may fail or reach for another address."""
    context = browser.new_context(base_url=address, locale="en")
    page = context.new_page()
    page.set_default_timeout(20_000)
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if is_fault(said) else None)
    page.on("request", lambda asked: faults.append(asked.url) if address not in asked.url else None)
    yield page
    context.close()
    assert not faults


def is_fault(said: ConsoleMessage) -> bool:
    """Whether the console tells of more than an answer that says no."""
    return said.type == "error" and not said.text.startswith("Failed to load resource")


def field(page: Page, name: str) -> Locator:
    return page.get_by_role("combobox", name=name, exact=True)


def suggested(page: Page, label: str) -> Locator:
    return page.locator(".options:visible li", has=page.get_by_text(label, exact=True))


def ask(page: Page, head: str, relation: str) -> None:
    page.goto("/")
    field(page, "who or what").fill(head)
    field(page, "is how related").fill(relation)
    page.get_by_role("button", name="Ask").click()


def test_a_question_is_asked_explained_judged_and_the_verdict_is_there_after_a_reload(page):
    page.goto("/")
    page.get_by_label("Your name").fill("ann")
    field(page, "who or what").fill("preson 4")  # a typo
    suggested(page, HEAD).click()
    field(page, "is how related").fill("lik")
    suggested(page, "likes").click()  # two parts are there: it is asked

    first = page.locator(".answers > li").first
    expect(first.locator(".open")).to_have_text(TAIL)
    expect(first.locator(".mark")).to_have_text("new")
    expect(first.locator(".number")).to_contain_text("%")

    first.locator(".open").click()
    expect(first.get_by_role("heading", name="Rules that lead to it")).to_be_visible()
    expect(first.locator("svg.drawing")).to_be_visible()
    expect(first.locator(".why")).to_contain_text("Not in the graph")

    first.get_by_role("button", name="Accept: it is true").click()
    expect(page.get_by_role("status")).to_contain_text("Kept: accept")
    page.reload()
    accept = page.locator(".answers > li").first.get_by_role("button", name="Accept: it is true")
    expect(accept).to_have_attribute("aria-pressed", "true")
    page.get_by_role("link", name="Verdicts").click()
    expect(page.locator("tbody tr").first).to_contain_text(f"{HEAD} {RELATION} {TAIL}")
    expect(page.locator("tbody tr").first).to_contain_text("ann")


def test_the_queue_is_worked_by_keys_alone(page):
    page.goto("/#/review")
    fact = page.locator(".fact")
    expect(fact).to_be_visible()
    seen = []
    for key, verdict in (("a", "accept"), ("r", "reject"), ("s", "unsure")):
        seen.append(fact.inner_text())
        page.keyboard.press(key)
        expect(page.get_by_role("status")).to_contain_text(f"Kept: {verdict}")
        expect(fact).not_to_have_text(seen[-1])
    assert len(set(seen)) == 3
    page.keyboard.press("b")
    expect(page.locator(".card").first).to_contain_text("You said: unsure")
    page.keyboard.press("w")
    expect(page.get_by_role("heading", name="Known facts like it")).to_be_visible()
    page.get_by_label("Note").fill("arts")  # letters in a field judge nothing
    expect(page.locator(".card").first).to_contain_text("You said: unsure")


def test_a_question_is_asked_by_keyboard_alone(page):
    page.goto("/")
    expect(page.get_by_role("heading", name="What is missing?")).to_be_visible()
    for _ in range(20):
        page.keyboard.press("Tab")
        if field(page, "who or what").evaluate("x => x === document.activeElement"):
            break
    page.keyboard.type(HEAD)
    expect(suggested(page, HEAD)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")  # takes the suggestion, and goes to the next empty part
    page.keyboard.type("likes")
    expect(suggested(page, "likes")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page.locator(".open").first).to_have_text(TAIL)


@pytest.mark.parametrize("width", [390, 1280])
def test_every_page_fits_its_width_and_hostile_labels_are_only_text(page, width):
    page.set_viewport_size({"width": width, "height": 844})
    page.goto("/")
    ask(page, IMAGE, "likes")
    page.locator(".open").first.click()
    expect(page.locator(".why").first).to_contain_text("Known facts like it")
    expect(page.locator(".why").first).to_contain_text(IMAGE)
    assert_harmless(page, width)
    for path in ("entity", "review", "metrics", "complete", "verdicts"):
        page.get_by_role("navigation").locator(f"a[href^='#/{path}?']").click()
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        if path == "entity":
            field(page, "Entity").fill("script")
            suggested(page, SCRIPT).click()
            expect(page.get_by_role("heading", level=1)).to_have_text(SCRIPT)
            expect(page.locator("svg.drawing")).to_contain_text("person")
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        assert_harmless(page, width)


def assert_harmless(page: Page, width: int) -> None:
    assert "taken" not in page.title()
    assert page.locator("main script, main img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_metrics_sort_and_choose_a_side(page):
    page.goto("/#/metrics?side=tail")
    expect(page.get_by_role("heading", name="board, test, tail")).to_be_visible()
    page.get_by_role("button", name="head", exact=True).click()
    expect(page.get_by_role("heading", name="board, test, head")).to_be_visible()
    table = page.locator("table").last
    column = table.get_by_role("columnheader", name="MRR tail")
    for order in ("descending", "ascending"):
        column.get_by_role("button").click()
        expect(column).to_have_attribute("aria-sort", order)
        values = [float(text) for text in table.locator("td:nth-child(3)").all_inner_texts()]
        assert values == sorted(values, reverse=order == "descending")
    expect(page.locator("svg[aria-label^='Validation MRR']")).to_be_visible()
    expect(page.locator("svg[aria-label^='How often']")).to_be_visible()


def test_a_completion_shows_its_facts(page):
    page.goto("/#/complete")
    page.get_by_label("How many facts").fill("5")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("heading", name="board: done")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(5)


def test_errors_are_said_in_words(page):
    ask(page, "nobody at all", "likes")
    expect(page.get_by_role("alert")).to_contain_text("no entity 'nobody at all'")


def test_the_switch_of_colours_outlives_a_reload(browser, address):
    context = browser.new_context(base_url=address, color_scheme="dark")
    page = context.new_page()
    page.goto("/")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Light or dark").click()
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    context.close()


def test_the_token_of_the_address_opens_the_page_and_leaves_the_address(browser, run, tmp_path):
    token = "a-token-of-some-length"
    words = (run.path, "--token", token, "--verdicts", tmp_path / "verdicts.sqlite")
    with started(*words) as (_, address):
        page = browser.new_page()
        page.goto(address.partition("#")[0])
        expect(page.get_by_role("heading", name="Who is there?")).to_be_visible()
        page.goto("about:blank")
        page.goto(address)
        expect(page.get_by_role("heading", name="What is missing?")).to_be_visible()
        assert token not in page.url
        page.close()


def test_two_runs_are_compared(browser, run, tmp_path):
    other = shutil.copytree(run.path, tmp_path / "other")
    with started(run.path, other) as (_, address):
        page = browser.new_page(base_url=address)
        page.goto("/#/metrics")
        page.get_by_label("beside").select_option("other")
        expect(page.get_by_role("heading", name="board beside other")).to_be_visible()
        expect(page.get_by_role("columnheader", name="MRR other")).to_be_visible()
        page.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_two_runs_answer_the_same_question_side_by_side(browser, run, tmp_path, width):
    other = puda.train(board(), tmp_path / "short", config=SHORT)
    words = run.path, other.path, "--verdicts", tmp_path / "verdicts.sqlite"
    with started(*words) as (_, address):
        page = browser.new_page(base_url=address, viewport={"width": width, "height": 844})
        ask(page, HEAD, RELATION)
        page.get_by_label("beside").select_option("short")
        expect(page.get_by_role("heading", name="board beside short")).to_be_visible()
        rows = page.locator(".beside tbody tr")
        places = [
            {each.tail: each.rank for each in one.predict(head=HEAD, relation=RELATION, k=100)}
            for one in (run, other)
        ]
        first = [{label for label, rank in each.items() if rank <= 10} for each in places]
        assert first[0] != first[1]
        expect(rows).to_have_count(len(first[0] | first[1]))
        for row in rows.all():
            label = row.locator("td").first.inner_text()
            shown = [int(rank) for rank in row.locator(".rank").all_inner_texts()]
            assert shown == [each[label] for each in places]
        same = f"{len(first[0] & first[1])} of the first 10 are the same"
        expect(page.get_by_role("region", name="Two runs")).to_contain_text(same)
        expect(page.locator(".answers .open").first).to_have_text(
            TAIL
        )  # of the first run, to judge
        assert_harmless(page, width)
        page.reload()
        expect(page.get_by_role("heading", name="board beside short")).to_be_visible()
        page.close()
