"""Takes the pictures of docs/serve.md: python scripts/screenshots.py ADDRESS, with `world` served.

Needs playwright and Debian's chromium.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

DOCS = Path(__file__).parent.parent / "docs"
WIDE, PHONE = {"width": 1120, "height": 900}, {"width": 390, "height": 844}
ASK = "#/ask?run=world&tail=Arabic&relation=speaks"
PICTURES = {
    "serve-ask.png": (ASK, WIDE, "light"),
    "serve-entity.png": ("#/entity?run=world&entity=France", WIDE, "light"),
    "serve-review.png": ("#/review?run=world", WIDE, "light"),
    "serve-metrics.png": ("#/metrics?run=world", WIDE, "dark"),
    "serve-phone.png": (ASK, PHONE, "dark"),
}


def main(address: str) -> None:
    """Open each page, wait until all of it is there, and take its picture."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for name, (path, size, colours) in PICTURES.items():
            page = browser.new_page(viewport=size, color_scheme=colours)
            page.goto(address.rstrip("/") + "/" + path)
            page.locator("main h1").wait_for()
            _open(page)
            page.wait_for_timeout(400)
            while page.locator("[aria-busy=true]").count():
                page.wait_for_timeout(200)
            page.screenshot(path=DOCS / name)
            print(DOCS / name)
            page.close()
        browser.close()


def _open(page: Page) -> None:
    """Show why, where there is a first answer or a fact to review."""
    if "#/ask" in page.url:
        page.locator(".answer .open").first.click()
        page.locator(".why h3").first.wait_for()
    elif "#/review" in page.url:
        page.locator(".fact").wait_for()
        page.keyboard.press("w")
        page.locator(".why h3").first.wait_for()


if __name__ == "__main__":
    main(*sys.argv[1:])
