"""docs/prices.md says what the code does: its table of sources, its commands, its examples."""

import json
import re
from datetime import date
from pathlib import Path

import pytest

from perrun.prices import files, snapshot, sources
from perrun.prices.cells import KINDS
from perrun.prices.quote import TERMS
from perrun.prices.sources import pages
from perrun.surfaces.cli import prices

PAGE = (Path(__file__).parents[1] / "docs" / "prices.md").read_text(encoding="utf-8")


def block(language):
    return re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[1]


def test_the_table_of_sources_is_that_of_the_code(monkeypatch):
    monkeypatch.delenv(pages.PAGES, raising=False)
    written = PAGE.partition("sources.markdown() -->\n")[2].partition("<!-- end")[0]
    assert written == sources.markdown()


def test_every_command_is_named_and_exists():
    named = set(re.findall(r"^\| `perrun prices (\w+)`", PAGE, re.MULTILINE))
    assert named == {command.name or command.callback.__name__ for command in prices.app.registered_commands}


def test_the_size_of_the_snapshot_is_that_of_the_file():
    assert f"holds {len(snapshot.shipped())} dated prices" in PAGE


def test_every_column_and_term_is_named():
    assert [column for column in KINDS if f"`{column}`" not in PAGE] == ["date_precision"]
    assert [term for term in TERMS if term not in PAGE] == []


def test_the_examples_are_read(tmp_path):
    file = tmp_path / "own.csv"
    file.write_text(block("csv"))
    assert [quote.mtbi_hours for quote in files.load(file)] == [None, 40]
    quotes = list(pages.parse_as("page", json.loads(block("json")), date(2026, 12, 1)))
    assert [quote.usd_per_hour for quote in quotes] == [1.68, 0.84]


@pytest.mark.parametrize("name", ["bounds.csv", "providers.csv", "priors.csv", "interruption_classes.csv"])
def test_tables_that_are_named_exist(name):
    from perrun.prices import tables

    assert name in PAGE
    assert tables.shipped(name)
