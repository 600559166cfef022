"""The book on real SQLite and real PostgreSQL: nothing is lost, pointers are right, and every day can be asked for."""

import subprocess
import sys
from datetime import UTC, date, datetime
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perrun.errors import InvalidInput, Unavailable, UnknownName
from perrun.prices import lock
from perrun.prices.book import Book
from perrun.prices.book.connect import HEAD
from perrun.prices.quote import Quote

DAYS = [date(2026, 1, day) for day in (5, 12, 19, 26)]


@pytest.fixture
def book(book_url):
    with Book(book_url) as opened:
        yield opened


def quote(instance="m1", usd=2.0, day=DAYS[0], **more):
    return Quote("cloud", "H100-SXM-80GB", 8, usd, day, "list", instance=instance, **more)


def at(day):
    return datetime(day.year, day.month, day.day, 12, tzinfo=UTC)


def add(book, *quotes, source="list", day=DAYS[0], **more):
    return book.add(source, quotes, now=at(day), **more)


def prices(quotes):
    return {quote.instance: quote.usd_per_hour for quote in quotes}


def test_what_goes_in_comes_out(book):
    full = Quote(
        "cloud", "A100-80GB", 4, 8.5, DAYS[0], "https://cloud.example/prices", "prepaid-block", "m4", "eu", 2, "EUR",
        7.7, 60.0, 3600.0, "disks", 0.1, 0.2, 0.09, 0.02, 25.0, 90.0, "5-10%", 50.0, (10, 24, 168), (24.0, 48.0), 256.0,
        "read me",
    )  # fmt: skip
    add(book, full, quote())
    assert book.latest() == [full, quote()]
    assert book.history(provider="cloud") == [full, quote()]


def test_a_later_price_replaces_and_the_earlier_one_stays_in_the_history(book):
    assert add(book, quote(usd=2.0), quote("m2", 3.0)).new == 2
    second = add(book, quote(usd=1.5, day=DAYS[1]), quote("m2", 3.0, DAYS[1]), day=DAYS[1])
    assert (second.new, second.changed, second.same, second.gone) == (0, 1, 1, 0)
    assert prices(book.latest()) == {"m1": 1.5, "m2": 3.0}
    assert [(q.observed_at, q.usd_per_hour) for q in book.history(instance="m1")] == [(DAYS[0], 2.0), (DAYS[1], 1.5)]


def test_as_of_is_what_was_known_on_that_day(book):
    for day, usd in zip(DAYS, (4.0, 3.0, 2.0, 1.0), strict=True):
        add(book, quote(usd=usd, day=day), day=day)
    for (day, after), usd in zip(pairwise(DAYS), (4.0, 3.0, 2.0), strict=True):
        assert prices(book.as_of(day)) == {"m1": usd}
        assert prices(book.as_of(date(day.year, day.month, after.day - 1))) == {"m1": usd}
    assert book.as_of(date(2026, 1, 4)) == []


def test_a_price_of_the_past_does_not_become_the_latest(book):
    add(book, quote(usd=2.0, day=DAYS[2]), day=DAYS[2])
    add(book, quote(usd=9.0, day=DAYS[0]), day=DAYS[3])
    assert prices(book.latest()) == {"m1": 2.0}
    assert prices(book.as_of(DAYS[1])) == {"m1": 9.0}


def test_of_two_prices_of_one_day_the_later_stored_counts(book):
    add(book, quote(usd=2.0))
    add(book, quote(usd=2.5))
    assert prices(book.latest()) == prices(book.as_of(DAYS[0])) == {"m1": 2.5}


def test_what_a_full_list_no_longer_holds_is_gone_but_not_forgotten(book):
    add(book, quote(), quote("m2", 3.0))
    assert add(book, quote("m2", 3.0, DAYS[1]), day=DAYS[1]).gone == 1
    assert prices(book.latest()) == {"m2": 3.0}
    assert prices(book.as_of(DAYS[0])) == {"m1": 2.0, "m2": 3.0}
    assert prices(book.history(instance="m1")) == {"m1": 2.0}
    back = add(book, quote(usd=2.2, day=DAYS[2]), quote("m2", 3.0, DAYS[2]), day=DAYS[2])
    assert back.new == 0
    assert prices(book.latest()) == {"m1": 2.2, "m2": 3.0}


def test_a_list_in_part_makes_nothing_gone(book):
    add(book, quote(), quote("m2", 3.0))
    assert add(book, quote("m2", 3.5, DAYS[1]), day=DAYS[1], complete=False).gone == 0
    assert prices(book.latest()) == {"m1": 2.0, "m2": 3.5}


def test_sources_do_not_touch_each_other_and_the_newer_of_two_counts(book):
    add(book, quote(usd=2.0, day=DAYS[1]), source="one", day=DAYS[1])
    add(book, quote(usd=2.6), source="two")
    assert prices(book.latest()) == {"m1": 2.0}
    assert [q.usd_per_hour for q in book.quotes()] == [2.0, 2.6]
    assert prices(book.latest(source="two")) == {"m1": 2.6}


def test_filters(book):
    add(book, quote(region="eu"), quote("m2", region="us", term="interruptible"))
    assert prices(book.latest(region="us")) == prices(book.latest(term=["interruptible"])) == {"m2": 2.0}
    assert book.latest(gpu=["L4-24GB"]) == []
    assert book.names("region") == ["eu", "us"]
    with pytest.raises(InvalidInput, match="no filter 'colour'"):
        book.latest(colour="red")


def test_a_failing_batch_leaves_no_trace(book):
    add(book, quote())

    def broken():
        yield quote(usd=9.0, day=DAYS[1])
        yield quote("m2", 9.0, DAYS[1])
        raise RuntimeError("the power fails")

    with pytest.raises(RuntimeError):
        book.add("list", broken(), now=at(DAYS[1]))
    assert book.history() == [quote()]
    assert [state.stored_at for state in book.sources()] == [at(DAYS[0])]


def test_a_source_that_fails_keeps_its_prices_and_says_why(book):
    add(book, quote())
    book.failed("list", "HTTP 500", now=at(DAYS[1]))
    (state,) = book.sources()
    assert (state.tried_at, state.stored_at, state.error) == (at(DAYS[1]), at(DAYS[0]), "HTTP 500")
    assert prices(book.latest()) == {"m1": 2.0}
    add(book, quote(day=DAYS[2]), day=DAYS[2])
    assert book.sources()[0].error == ""


def test_a_price_that_is_held_back_waits_and_its_offer_stays_as_it_was(book):
    add(book, quote(), quote("m2", 3.0))
    doubtful = quote(usd=200.0, day=DAYS[1])
    done = add(book, quote("m2", 3.0, DAYS[1]), day=DAYS[1], held=[(doubtful, "cents?")])
    assert (done.quarantined, done.gone) == (1, 0)
    assert prices(book.latest()) == {"m1": 2.0, "m2": 3.0}
    (waiting,) = book.held()
    assert (waiting.quote, waiting.reason, waiting.source) == (doubtful, "cents?", "list")


def test_a_held_price_is_accepted_or_dropped_for_good(book):
    one, two = quote(usd=200.0), quote("m2", 300.0)
    add(book, held=[(one, "?"), (two, "?")])
    add(book, held=[(one, "?"), (two, "?")])  # seen again: held once
    first, second = book.held()
    book.decide(first.id, accept=True)
    book.decide(second.id, accept=False)
    assert book.latest() == [one]
    add(book, one, held=[(two, "?")])
    assert book.held() == []
    with pytest.raises(UnknownName, match="no quote 99"):
        book.decide(99, accept=True)


def test_a_book_opens_again_at_the_newest_schema(book_url):
    with Book(book_url) as first:
        add(first, quote())
    with Book(book_url) as again:
        assert prices(again.latest()) == {"m1": 2.0}
        with again.engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() == HEAD


def test_migrations_lead_to_the_tables_that_the_code_uses(book):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from perrun.prices.book.schema import metadata

    with book.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def _downgrade(book, revision):
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "perrun.prices.book:migrations")
    with book.writing() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, revision)


def test_migrations_can_be_taken_back(book):
    from sqlalchemy import inspect

    _downgrade(book, "base")
    with book.engine.connect() as connection:
        assert inspect(connection).get_table_names() == ["alembic_version"]


WRITER = """
import sys
from datetime import UTC, date, datetime
from perrun.prices.book import Book
from perrun.prices.quote import Quote
with Book(sys.argv[1]) as book:
    for number in range(20):
        instance = f"{sys.argv[2]}-{number}"
        book.add(sys.argv[2], [Quote("c", "L4-24GB", 1, 1.0, date(2026, 1, 1), "x", instance=instance)], complete=False)
"""


def test_two_writers_at_once_lose_nothing(book_url):
    running = [subprocess.Popen([sys.executable, "-c", WRITER, book_url, name]) for name in ("one", "two")]
    assert [process.wait(timeout=60) for process in running] == [0, 0]
    with Book(book_url) as book:
        assert len(prices(book.latest())) == 40
        with book.engine.connect() as connection:
            ids = connection.exec_driver_sql("SELECT count(*), count(DISTINCT id) FROM observations").one()
        assert tuple(ids) == (40, 40)


def test_one_refresh_at_a_time(book):
    with (
        lock.held(book, "refresh", 60),
        pytest.raises(Unavailable, match="running already"),
        lock.held(book, "refresh", 60),
    ):
        pytest.fail("two hold the lock")
    with lock.held(book, "refresh", 60):
        pass


def test_the_lock_of_a_dead_holder_is_taken_over(book, book_url):
    code = "import sys; from perrun.prices import lock; from perrun.prices.book import Book; "
    code += "lock.take(Book(sys.argv[1]), 'refresh', 3600)"
    subprocess.run([sys.executable, "-c", code, book_url], check=True, timeout=60)
    with lock.held(book, "refresh", 60):
        pass


def test_a_lock_that_ran_out_is_taken_over(book):
    lock.take(book, "refresh", -1)
    with lock.held(book, "refresh", 60):
        pass


@pytest.mark.parametrize(
    ("url", "error", "match"),
    [
        ("no url", InvalidInput, "no database URL"),
        ("mysql://x/y", InvalidInput, "no price book in mysql"),
        ("postgresql://perrun:secret@127.0.0.1:9/x", Unavailable, "does not answer"),
    ],
)
def test_a_database_that_cannot_be(url, error, match):
    with pytest.raises(error, match=match) as caught:
        Book(url)
    assert "secret" not in str(caught.value)


def test_a_file_that_is_no_database_and_a_book_of_a_newer_perrun(tmp_path):
    (tmp_path / "text.db").write_text("no database at all, but a text of some length" * 40)
    with pytest.raises(Unavailable, match="does not answer: file is not a database"):
        Book(f"sqlite:///{tmp_path}/text.db")
    with Book(f"sqlite:///{tmp_path}/new.db") as book, book.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(Unavailable, match="newer perrun"):
        Book(f"sqlite:///{tmp_path}/new.db")


def test_a_book_of_the_first_schema_opens_with_its_prices(book_url):
    """Downgraded with a price in it, opened again: the price is there, and terms that came later can be stored."""
    with Book(book_url) as book:
        add(book, quote(storage_usd_per_gb_month=0.1))
        _downgrade(book, "0001")
    with Book(book_url) as book:
        assert prices(book.latest()) == {"m1": 2.0}
        add(book, quote(day=DAYS[1], ingress_usd_per_gb=0.02, stopped_storage_usd_per_gb_month=0.2), day=DAYS[1])
        (found,) = book.latest()
        assert (found.ingress_usd_per_gb, found.stopped_storage_usd_per_gb_month) == (0.02, 0.2)


def test_of_one_product_from_two_sources_the_market_counts_the_newer(book):
    add(book, quote(usd=2.6), source="one")
    add(book, quote(usd=2.0, day=DAYS[1]), quote("m2", usd=4.0, day=DAYS[1]), source="two", day=DAYS[1])
    assert sorted(book.columns()["usd_per_hour"]) == [2.0, 4.0]
    assert book.columns(as_of=DAYS[0])["usd_per_hour"] == [2.6]


LISTS = st.dictionaries(
    st.integers(0, 9),  # day
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from([1.0, 2.0, 3.0]), max_size=4),
    min_size=1,
    max_size=6,
)


@settings(max_examples=30, deadline=None)
@given(LISTS)
def test_as_of_any_day_equals_replaying_the_lists_up_to_it(lists):
    """The book against a plain dictionary: full lists, one a day at most, in the order of days."""
    by_day = {day: lists[day] for day in sorted(lists)}
    with Book("sqlite://") as book:
        for day, listed in by_day.items():
            when = date(2026, 1, 1 + day)
            add(book, *(quote(name, usd, when) for name, usd in listed.items()), day=when)
        for day in range(10):
            seen = [listed for known, listed in by_day.items() if known <= day]
            assert prices(book.as_of(date(2026, 1, 1 + day))) == (seen[-1] if seen else {})
        assert prices(book.latest()) == list(by_day.values())[-1]
