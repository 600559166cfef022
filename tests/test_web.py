"""The page: a form that answers without JavaScript, in three languages, with the figures of REST, safe, accessible."""

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from perrun.facts import gpus
from perrun.surfaces.web import charts, words
from rest import Client

CONFIG = (Path(__file__).parent / "data" / "configs" / "Qwen__Qwen3-0.6B.json").read_text()
ASKED = {"model": "meta-llama/Llama-3.1-8B", "method": "qlora", "examples": "5000", "tokens": "1500", "epochs": "3"}
VOID = {"meta", "link", "input"}


class Page(HTMLParser):
    """Elements of a page with their attributes and text; tags must nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[int, str] = {}
        self.open: list[tuple[str, int]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append((tag, len(self.elements) - 1))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for _, number in self.open:
            self.texts[number] = self.texts.get(number, "") + data

    def all(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        return [found for name, found in self.elements if name == tag and wanted.items() <= found.items()]

    def text(self, tag: str, **wanted: str) -> list[str]:
        return [
            self.texts.get(i, "").strip()
            for i, (name, found) in enumerate(self.elements)
            if name == tag and wanted.items() <= found.items()
        ]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERRUN_DATA_DIR", str(tmp_path_factory.mktemp("data")))
        yield Client()


def page(client: Client, asked: dict[str, str], status: int = 200, **headers: str) -> Page:
    answer = client.get(f"/?{urlencode(asked)}", headers=headers)
    assert answer.status_code == status
    return Page(answer.text)


def test_the_first_view_is_a_form_and_no_answer(client: Client) -> None:
    found = page(client, {})
    assert found.all("table") == []
    assert found.all("form", method="get", action="/")
    assert {one["name"] for one in (*found.all("input"), *found.all("select"), *found.all("textarea"))} == {
        *("lang", "model", "config", "method", "examples", "tokens", "epochs", "budget", "deadline", "cards", "sort")
    }


def test_the_first_view_is_light(client: Client) -> None:
    import gzip

    bodies = [client.get(path).content for path in ("/", "/static/htmx.min.js", "/static/style.css")]
    assert sum(len(gzip.compress(body, 3)) for body in bodies) < 150_000


def test_the_table_has_the_figures_of_rest(client: Client) -> None:
    shown = page(client, ASKED)
    job = {"method": "qlora", "examples": 5000, "tokens_per_example": 1500, "epochs": 3}
    answer = client.post("/v1/plan", {"model": ASKED["model"], "job": job}).json()
    rows = shown.text("tr")[1 : 1 + len(answer["plans"])]
    for row, plan in zip(rows, answer["plans"], strict=True):
        offer = plan["offer"]
        assert row.startswith(f"{offer['rig']['n_gpus']}x {offer['rig']['gpu']}{offer['provider']}")
        assert f"{plan['usd']:,.2f} ({plan['usd_low']:,.2f}–{plan['usd_high']:,.2f})" in row
        assert f"{plan['estimate']['memory']['device_gib']:,.1f} / " in row


def test_fit_is_shown_per_card_with_words_beside_the_marks(client: Client) -> None:
    shown = page(client, ASKED)
    job = {"method": "qlora", "examples": 5000, "tokens_per_example": 1500, "epochs": 3}
    cells = client.post("/v1/fit", {"model": ASKED["model"], "job": job}).json()["cells"]
    for mark, word in (("yes", "fits"), ("tight", "may fit"), ("no", "does not fit")):
        found = shown.text("td", **{"class": mark})
        assert len(found) == sum(cell["mark"] == mark for cell in cells)
        assert all(word in text for text in found)


def test_a_link_reproduces_the_view(client: Client) -> None:
    asked = {**ASKED, "budget": "25", "sort": "hours", "cards": "H100 SXM, L40S", "lang": "de"}
    shown = page(client, asked)
    links = [one["href"] or "" for one in shown.all("a") if "hreflang" not in one]
    link = next(one for one in links if one.startswith("/?"))
    again = client.get(link).text
    assert again == client.get(f"/?{urlencode(asked)}").text
    assert parse_qs(urlsplit(link).query)["cards"] == ["H100 SXM, L40S"]


def test_a_pasted_config_is_answered(client: Client) -> None:
    assert len(page(client, {"config": CONFIG, "method": "full"}).all("table")) == 2


def test_downloads_are_the_same_plans(client: Client) -> None:
    query = urlencode(ASKED)
    answer = client.get(f"/plan.json?{query}")
    assert "attachment" in answer.headers["content-disposition"]
    rows = list(csv.DictReader(client.get(f"/plans.csv?{query}").text.splitlines()))
    assert [float(row["usd"]) for row in rows] == [plan["usd"] for plan in answer.json()["plans"]]


@pytest.mark.parametrize(
    ("language", "title", "figure"), [("en", "What", "0.9"), ("de", "Was", "0,9"), ("fr", "Ce que", "0,9")]
)
def test_three_languages(client: Client, language: str, title: str, figure: str) -> None:
    shown = page(client, {**ASKED, "lang": language})
    assert shown.all("html", lang=language)
    assert shown.text("h1")[0].startswith(title)
    assert words.number(0.9, 1, language) == figure
    by_browser = page(client, ASKED, **{"Accept-Language": f"xx, {language}-CH;q=0.9, en;q=0.1"})
    assert by_browser.all("html", lang=language)


def test_every_message_is_there_in_every_language() -> None:
    template = (Path(words.__file__).parent / "page.html").read_text()
    used = set(re.findall(r"\bw\.([a-z_]+)", template))
    english = words.catalogue("en")
    assert used <= set(english)
    for language in words.LANGUAGES:
        messages = words.catalogue(language)
        assert set(messages) == set(english)
        assert all(messages.values())
        assert language == "en" or sum(messages[key] != english[key] for key in english) > 0.8 * len(english)


def test_it_is_labelled_for_screen_readers_and_keyboards(client: Client) -> None:
    shown = page(client, ASKED)
    labels = {one["for"] for one in shown.all("label")}
    fields = [
        one
        for one in (*shown.all("input"), *shown.all("select"), *shown.all("textarea"))
        if one.get("type") != "hidden"
    ]
    assert {one["id"] for one in fields} == labels
    ids = [found["id"] for _, found in shown.elements if "id" in found]
    assert len(ids) == len(set(ids))
    for _, found in shown.elements:
        for name in ("aria-describedby", "aria-labelledby"):
            assert name not in found or found[name] in ids
    assert len(shown.all("h1")) == 1
    assert all("scope" in one for one in shown.all("th"))
    assert all("aria-labelledby" in one for one in shown.all("svg", role="img"))
    assert shown.all("a", href="#answer")
    assert shown.all("div", role="status")


def _luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2)."""
    digits = colour.lstrip("#")
    digits = "".join(2 * one for one in digits) if len(digits) == 3 else digits
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_text_is_readable_in_light_and_dark(client: Client) -> None:
    style = client.get("/static/style.css").text
    themes = [dict(re.findall(r"--(\w+): (#[0-9a-f]+)", block)) for block in re.findall(r":root \{([^}]*)\}", style)]
    assert len(themes) == 2
    for theme in themes:
        for ground in ("ground", "raised"):
            for name in ("text", "soft", "accent", "good", "maybe", "bad"):
                low, high = sorted((_luminance(theme[ground]), _luminance(theme[name])))
                assert (high + 0.05) / (low + 0.05) >= 4.5, (name, ground)


def test_nothing_comes_from_elsewhere_and_nothing_is_inline(client: Client) -> None:
    answer = client.get(f"/?{urlencode(ASKED)}")
    shown = Page(answer.text)
    addresses = [found[name] or "" for _, found in shown.elements for name in ("src", "href") if name in found]
    assert all(one.startswith(("/", "#")) and not one.startswith("//") for one in addresses)
    assert not any("style" in found or any(name.startswith("on") for name in found) for _, found in shown.elements)
    assert all("src" in one for one in shown.all("script"))
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert client.get("/static/htmx.min.js").text.startswith("var htmx")


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{7*7}}", "' onfocus='x"]
)
@pytest.mark.parametrize("field", ["model", "config", "method", "examples", "cards", "sort", "budget", "lang"])
def test_what_was_typed_stays_text(client: Client, field: str, text: str) -> None:
    answer = client.get(f"/?{urlencode({**ASKED, field: text})}")
    assert answer.status_code in (200, 404, 422)
    shown = Page(answer.text)
    assert all("src" in one for one in shown.all("script"))
    assert not shown.all("img")
    assert not any("onfocus" in found for _, found in shown.elements)
    assert "49" not in shown.text("div", role="alert")[0] if shown.all("div", role="alert") else True


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"model": "Llama-9"}, 404),
        ({"examples": "-1"}, 422),
        ({"examples": "many"}, 422),
        ({"epochs": "inf"}, 422),
        ({"budget": "0.0001"}, 422),
        ({"config": "{"}, 422),
        ({"config": "[1]"}, 422),
        ({"config": "[" * 5000}, 422),
        ({"config": "{}"}, 422),
        ({"cards": "Voodoo 2"}, 404),
        ({"model": "/etc/passwd"}, 404),
    ],
)
def test_a_mistake_is_said_and_the_form_keeps_what_was_typed(
    client: Client, wrong: dict[str, str], status: int
) -> None:
    shown = page(client, {**ASKED, **wrong}, status)
    assert shown.all("div", role="alert")
    assert shown.all("table") == []
    (field, text), *_ = wrong.items()
    if field != "config":
        assert shown.all("input", name=field)[0]["value"] == text


PLANS = [
    {
        "hours": hours,
        "usd": usd,
        "hours_low": hours / 2,
        "hours_high": 2 * hours,
        "usd_low": usd / 2,
        "usd_high": 2 * usd,
    }
    for hours, usd in ((1.0, 10.0), (2.0, 5.0), (2.5, 7.0), (4.0, 5.0), (8.0, 1.0))
]


def test_the_front_is_what_no_other_plan_beats() -> None:
    assert [(p["hours"], p["usd"]) for p in charts.front(PLANS)] == [(1.0, 10.0), (2.0, 5.0), (8.0, 1.0)]


def test_the_chart_is_logarithmic_and_holds_every_range() -> None:
    drawn = charts.scatter(PLANS)
    assert drawn is not None
    xs = [point["x"] for point in drawn["points"]]
    assert xs[1] - xs[0] == pytest.approx(xs[3] - xs[1], abs=0.2)  # 1 to 2 h is as far as 2 to 4 h
    for point in drawn["points"]:
        assert charts.LEFT <= point["x1"] < point["x"] < point["x2"] <= charts.WIDTH - charts.RIGHT
        assert charts.TOP <= point["y2"] < point["y"] < point["y1"] <= charts.HEIGHT - charts.BOTTOM
    assert charts.scatter([]) is None


def test_bars_are_as_long_as_their_gib(client: Client) -> None:
    plans = json.loads(client.get(f"/plan.json?{urlencode(ASKED)}").content)["plans"]
    drawn = charts.bars(plans, lambda rig: gpus.get(rig["gpu"]).memory_gib_usable or 0.0)
    assert drawn is not None
    for row in drawn["rows"]:
        memory = row["plan"]["estimate"]["memory"]
        per_gib = (row["limit"] - charts.BAR_LEFT) / row["has"]
        assert sum(part["width"] for part in row["parts"]) / per_gib == pytest.approx(memory["device_gib"], rel=0.02)
        assert row["limit"] <= charts.WIDTH
