"""A refresh of many sources: each fails alone, none blocks the rest, and a kill loses and halves nothing."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from datetime import date

import pytest

from loopback import Reply
from perrun.errors import Unavailable
from perrun.prices import lock, place, snapshot
from perrun.prices.book import Book
from perrun.prices.files import rows
from perrun.prices.quote import Quote
from perrun.prices.refresh import LOCK, refresh
from perrun.prices.sources.base import Source
from perrun.prices.sources.pages import listed

TODAY = date(2026, 12, 1)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PERRUN_DATA_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def either_book(book_url):
    with Book(book_url) as opened:
        yield opened


@pytest.fixture
def book(folder):
    with Book(f"sqlite:///{folder}/prices.db") as opened:
        yield opened


def source(name, quotes, fetch=lambda _: None, **more):
    """A source that says these quotes, whatever it fetches."""
    return Source(name, "", "https://x", fetch, lambda *_: quotes, "", "", "", "", **more)


def page(count, usd=2.0):
    return json.dumps(
        [{"gpu": "H100 SXM", "n_gpus": 1, "usd_per_hour": usd, "instance": f"m{n}"} for n in range(count)]
    )


def pages(server, folder, names):
    listing = folder / "pages.csv"
    listing.write_text("".join(f"{name},{server.url}/{name}\n" for name in names))
    return listed(str(listing))


def prices(book, source):
    return {quote.instance: quote.usd_per_hour for quote in book.latest(source=source)}


def test_twenty_sources_two_hang_and_three_are_broken(server, folder, either_book):
    book = either_book
    names = [f"s{n:02d}" for n in range(20)]
    for name in names:
        server.replies[f"/{name}"] = Reply(page(3))
    refresh(book, pages(server, folder, names), timeout_s=20, today=TODAY)
    hang, broken = names[:2], names[2:5]
    server.replies["/s00"] = Reply(page(3), wait=60)
    server.replies["/s01"] = Reply(page(3), drip=0.2)
    server.replies["/s02"] = Reply("", 404)
    server.replies["/s03"] = Reply(page(3)[:-20])
    server.replies["/s04"] = Reply('[{"gpu": "H100 SXM", "n_gpus": 1, "usd_per_hour": -1}]')
    for name in names[5:]:
        server.replies[f"/{name}"] = Reply(page(2, 1.9))
    start = time.monotonic()
    outcomes = {o.source: o for o in refresh(book, pages(server, folder, names), timeout_s=3, today=TODAY)}
    assert time.monotonic() - start < 3 + 2  # the time-out of one, and the time to store fifteen
    assert {name for name, outcome in outcomes.items() if outcome.added is None} == {*hang, *broken}
    for name in (*hang, *broken):
        assert prices(book, name) == {"m0": 2.0, "m1": 2.0, "m2": 2.0}
        assert next(state for state in book.sources() if state.name == name).error == outcomes[name].error
    for name in names[5:]:
        assert prices(book, name) == {"m0": 1.9, "m1": 1.9}
        assert outcomes[name].added.gone == 1


def test_a_source_that_breaks_in_an_unforeseen_way_fails_alone(book):
    def explode():
        yield Quote("c", "L4-24GB", 1, 1.0, TODAY, "bad")
        raise ZeroDivisionError("oops")

    good = source("good", [Quote("c", "L4-24GB", 1, 0.5, TODAY, "good")])
    told = []
    outcomes = refresh(book, [source("bad", explode()), good], today=TODAY, told=told.append)
    assert {o.source: bool(o.added) for o in outcomes} == {"bad": False, "good": True}
    assert "ZeroDivisionError" in next(o.error for o in outcomes if o.source == "bad")
    assert len(told) == 2
    assert [quote.usd_per_hour for quote in book.latest()] == [0.5]


def test_a_source_that_hangs_outside_our_fetcher_is_left_behind(book):
    never = threading.Event()
    stuck = source("stuck", [], lambda _: never.wait(30))
    start = time.monotonic()
    (outcome,) = refresh(book, [stuck], timeout_s=0.3, today=TODAY)
    assert time.monotonic() - start < 2
    assert "did not answer within 0.3 s" in outcome.error
    never.set()


def test_a_source_without_its_key_is_skipped_and_not_a_failure(book, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    locked = source("locked", [], keys=("NO_SUCH_KEY",), needs_key=True)
    (outcome,) = refresh(book, [locked])
    assert outcome.skipped == "needs NO_SUCH_KEY"
    assert book.sources() == []


def test_an_answer_without_prices_does_not_bury_everything(server, folder, book):
    server.replies["/s"] = Reply(page(3))
    refresh(book, pages(server, folder, ["s"]), today=TODAY)
    server.replies["/s"] = Reply("[]")
    (outcome,) = refresh(book, pages(server, folder, ["s"]), today=TODAY)
    assert "without a single price" in outcome.error
    assert len(prices(book, "s")) == 3


def test_what_came_in_part_makes_nothing_gone(book):
    def fetch(http):
        http.missing.append("half of it")

    quotes = [Quote("c", "L4-24GB", 1, 0.5, TODAY, "s", instance=name) for name in "ab"]
    refresh(book, [source("s", quotes)], today=TODAY)
    (outcome,) = refresh(book, [source("s", quotes[:1], fetch)], today=TODAY)
    assert outcome.missing == ("half of it",)
    assert len(book.latest()) == 2


def test_jumps_cents_and_unknown_cards_are_held_back_or_counted(server, folder, book):
    server.replies["/s"] = Reply(page(2))
    refresh(book, pages(server, folder, ["s"]), today=TODAY)
    rows_ = json.loads(page(2))
    rows_[0]["usd_per_hour"] = 200.0  # cents
    server.replies["/s"] = Reply(json.dumps(rows_))
    (outcome,) = refresh(book, pages(server, folder, ["s"]), today=TODAY)
    assert (outcome.added.quarantined, outcome.added.same, outcome.added.gone) == (1, 1, 0)
    assert prices(book, "s") == {"m0": 2.0, "m1": 2.0}
    assert "cents" in book.held()[0].reason
    strange = [Quote("c", "TPU v9", 1, 1.0, TODAY, "t"), Quote("c", "L4-24GB", 1, 0.5, TODAY, "t")]
    (outcome,) = refresh(book, [source("t", strange)], today=TODAY)
    assert outcome.unknown_cards == ("TPU v9",)
    assert outcome.added.new == 1


def test_planners_see_what_was_published_and_nothing_before(server, folder, book):
    server.replies["/s"] = Reply(page(2, 1.23))
    assert snapshot.published() == []
    refresh(book, pages(server, folder, ["s"]), today=TODAY)
    assert {quote.usd_per_hour for quote in snapshot.published()} == {1.23}
    mine = [offer for offer in snapshot.offers() if offer.provider == "s"]
    assert [(offer.rig.gpu, offer.usd_per_hour) for offer in mine] == [("H100-SXM-80GB", 1.23)] * 2


def test_a_second_refresh_is_refused_while_one_runs(book):
    with lock.held(book, LOCK, 60), pytest.raises(Unavailable, match="running already"):
        refresh(book, [])


REFRESH = """
import sys
from datetime import date
from perrun.prices.book import Book
from perrun.prices.refresh import refresh
from perrun.prices.sources.pages import listed
with Book(sys.argv[1]) as book:
    print("go", flush=True)
    refresh(book, listed(sys.argv[2]), timeout_s=20, today=date(2026, 12, 1))
"""


def test_a_kill_at_any_moment_loses_nothing_and_leaves_no_half(server, folder, either_book):
    """Five sources go from price 2 to price 1; killed anywhere, each is whole at one of them."""
    book = either_book
    names, size = [f"s{n}" for n in range(5)], 400
    for name in names:
        server.replies[f"/{name}"] = Reply(page(size))
    pages(server, folder, names)
    refresh(book, listed(str(folder / "pages.csv")), today=TODAY)
    for name in names:
        server.replies[f"/{name}"] = Reply(page(size, 1.0))
    seen: set[int] = set()
    draw = random.Random(7)
    for _ in range(8):
        command = [sys.executable, "-c", REFRESH, book.url, str(folder / "pages.csv")]
        running = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        running.stdout.readline()
        time.sleep(draw.uniform(0.0, 0.8))
        running.send_signal(signal.SIGKILL)
        running.wait()
        running.stdout.close()
        changed = 0
        for name in names:
            found = prices(book, name)
            assert len(found) == size
            assert set(found.values()) in ({2.0}, {1.0})
            changed += set(found.values()) == {1.0}
        seen.add(changed)
        assert len(book.history(source=names)) >= 5 * size
        published = place.published(book.url).read_text(encoding="utf-8").splitlines(keepends=True)
        assert len(rows(published)) == 5 * size  # the old file or the new one, never a part
    outcomes = refresh(book, listed(str(folder / "pages.csv")), today=TODAY)  # the dead holder's lock is no hindrance
    assert all(outcome.added for outcome in outcomes)
    assert all(set(prices(book, name).values()) == {1.0} for name in names)
