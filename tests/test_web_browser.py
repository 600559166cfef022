"""The page in a real browser (Debian's Chromium): journeys in three languages, keyboard, phone, dark, without scripts.

Screenshots are kept in PERRUN_ARTEFACTS, or in pytest's folder of this run.
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rest import served

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: scripts/services installs it")
LLAMA = "meta-llama/Llama-3.1-8B"
WORDS = {  # language -> label of the model, button, heading of the table, complaint
    "en": ("Model", "Show", "What can be bought", "That does not work"),
    "de": ("Modell", "Zeigen", "Was zu kaufen ist", "So geht es nicht"),
    "fr": ("Modèle", "Afficher", "Ce qui s'achète", "Cela ne va pas"),
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(PERRUN_DATA_DIR=str(tmp_path_factory.mktemp("data"))) as (found, _, _):
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(os.environ.get("PERRUN_ARTEFACTS") or tmp_path_factory.mktemp("screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Seen:
    """A page, and what its console said."""

    def __init__(self, browser: Any, **context: Any) -> None:
        self.page = browser.new_context(**context).new_page()
        self.said: list[str] = []
        self.page.on("console", lambda one: self.said.append(one.text) if one.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda one: self.said.append(str(one)))


@pytest.mark.parametrize("language", WORDS)
def test_a_question_is_answered_and_its_link_shows_the_same(
    browser: Any, address: str, artefacts: Path, language: str
) -> None:
    label, button, heading, complaint = WORDS[language]
    seen = Seen(browser, locale=language)
    seen.page.goto(address)
    seen.page.get_by_label(label, exact=True).fill(LLAMA)
    seen.page.get_by_role("button", name=button).click()
    seen.page.get_by_role("heading", name=heading).wait_for()
    assert seen.page.locator("#plans tbody tr").count() == 20
    assert seen.page.locator("#fit tbody tr").count() == 10
    assert seen.said == []
    seen.page.screenshot(path=artefacts / f"{language}.png", full_page=True)
    again = Seen(browser, locale=language)
    again.page.goto(seen.page.url)
    assert again.page.locator("#answer").inner_text() == seen.page.locator("#answer").inner_text()
    seen.page.get_by_label(label, exact=True).fill("Llama-9")
    seen.page.get_by_role("button", name=button).click()
    seen.page.get_by_role("heading", name=complaint).wait_for()
    seen.page.go_back()
    seen.page.get_by_role("heading", name=heading).wait_for()


def test_another_language_keeps_the_question(browser: Any, address: str) -> None:
    seen = Seen(browser, locale="en")
    seen.page.goto(f"{address}/?model={LLAMA}&method=full")
    rows = seen.page.locator("#plans tbody tr").count()
    seen.page.get_by_role("link", name="Deutsch").click()
    seen.page.get_by_role("heading", name=WORDS["de"][2]).wait_for()
    assert seen.page.locator("#plans tbody tr").count() == rows
    assert seen.page.locator("#method").input_value() == "full"


def test_without_scripts_the_form_answers_too(browser: Any, address: str) -> None:
    seen = Seen(browser, java_script_enabled=False)
    seen.page.goto(address)
    seen.page.fill("#model", LLAMA)
    seen.page.click("button")
    assert seen.page.locator("#plans tbody tr").count() == 20


def test_by_keyboard_alone(browser: Any, address: str) -> None:
    seen = Seen(browser)
    seen.page.goto(address)
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.className") == "skip"
    for _ in range(4):  # three languages, then the model
        seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.id") == "model"
    seen.page.keyboard.type(LLAMA)
    seen.page.keyboard.press("Enter")
    seen.page.locator("#plans").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Any, address: str, artefacts: Path, scheme: str) -> None:
    seen = Seen(browser, viewport={"width": 390, "height": 844}, color_scheme=scheme)
    seen.page.goto(f"{address}/?model={LLAMA}")
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= 390
    ground = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
    bright = sum(int(part) for part in re.findall(r"\d+", ground)[:3]) > 3 * 128
    assert bright == (scheme == "light")
    seen.page.screenshot(path=artefacts / f"phone-{scheme}.png", full_page=True)


def test_the_first_view_comes_soon_and_nothing_moves(browser: Any, address: str) -> None:
    took: list[float] = []
    for _ in range(3):
        seen = Seen(browser)
        seen.page.goto(address)
        took.append(seen.page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"))
        shifts = seen.page.evaluate(
            "new Promise(done => { let sum = 0; new PerformanceObserver(list => { for (const one of list.getEntries())"
            " sum += one.value }).observe({type: 'layout-shift', buffered: true}); setTimeout(() => done(sum), 300) })"
        )
        assert shifts == 0
        assert seen.said == []
    assert min(took) < 1000


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("asked", ["", f"?model={LLAMA}", "?model=Llama-9"], ids=["form", "answer", "complaint"])
def test_axe_finds_nothing(browser: Any, address: str, scheme: str, asked: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    seen = Seen(browser, color_scheme=scheme)
    seen.page.goto(f"{address}/{asked}")
    found = axe.Axe().run(seen.page)
    assert [(one["id"], one["nodes"][0]["html"]) for one in found.response["violations"]] == []
