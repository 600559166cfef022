"""Prices that stay fresh while a server runs."""

import asyncio
import logging
from pathlib import Path

import pytest

from perrun.errors import Unavailable
from perrun.prices import desk
from perrun.prices.refresh import Outcome
from perrun.surfaces.rest import fresh


@pytest.fixture(autouse=True)
def _own_book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERRUN_DATA_DIR", str(tmp_path))


def test_only_what_is_due_is_asked(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    asked: list[list[str]] = []

    def refreshed(_book: object, names: list[str]) -> list[Outcome]:
        asked.append(names)
        return [Outcome(name, 0.1, error="timed out" if name == names[0] else "") for name in names]

    monkeypatch.setattr(desk, "refreshed", refreshed)
    with caplog.at_level(logging.WARNING):
        every = fresh.due()
    (names,) = asked
    assert every == len(names) > 5  # a new book has asked nobody
    assert f"{names[0]} keeps its old prices: timed out" in caplog.text
    monkeypatch.setattr(desk, "wanted", lambda _book, due: [] if due else names)
    assert fresh.due() == 0
    assert len(asked) == 1


def test_it_looks_again_and_outlives_a_refresh_that_another_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def due() -> int:
        looks.append(len(looks))
        if len(looks) == 1:
            raise Unavailable("another refresh is running")
        return 0

    monkeypatch.setattr(fresh, "due", due)

    async def serve() -> None:
        async with fresh.kept_fresh(0.01):
            while len(looks) < 3:
                await asyncio.sleep(0.01)
        stopped = len(looks)
        await asyncio.sleep(0.05)
        assert len(looks) <= stopped + 1  # one may have been on its way

    asyncio.run(asyncio.wait_for(serve(), 20))


def test_by_default_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh, "due", lambda: pytest.fail("asked"))

    async def serve() -> None:
        async with fresh.kept_fresh(0.0):
            await asyncio.sleep(0.02)

    asyncio.run(serve())
