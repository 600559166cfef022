"""The book's two sides: `add` stores what one source saw, in one transaction; the rest asks."""

import json
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from perrun.errors import UnknownName
from perrun.prices.book import ask, bulk, connect
from perrun.prices.place import book_url
from perrun.prices.quote import Quote, identity

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(frozen=True, slots=True)
class Added:
    """What one batch changed: counts of offers."""

    new: int = 0
    changed: int = 0
    same: int = 0
    gone: int = 0
    quarantined: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """A quote that was not taken, and why."""

    id: int
    source: str
    quote: Quote
    reason: str


@dataclass(frozen=True, slots=True)
class SourceState:
    """When a source was last asked, when it last answered, and what went wrong since."""

    name: str
    tried_at: datetime | None
    stored_at: datetime | None
    error: str


def packed(quote: Quote) -> str:
    """A quote as JSON."""
    return json.dumps(quote._asdict(), default=str)


def unpacked(text: str) -> Quote:
    data = json.loads(text)
    data["observed_at"] = date.fromisoformat(data["observed_at"])
    for name in ("block_gpu_hours", "reservation_hours"):
        data[name] = tuple(data[name])
    return Quote(**data)


class Book:
    """Opens the book and brings its schema up to date. Raises InvalidInput for a URL that is none, Unavailable."""

    def __init__(self, url: str | None = None) -> None:
        self.url = url or book_url()
        self.engine = connect.engine(self.url)
        connect.migrate(self.engine)

    def close(self) -> None:
        self.engine.dispose()

    def __enter__(self) -> "Book":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- storing ---------------------------------------------------------------------------------------------------

    def add(
        self,
        source: str,
        quotes: Iterable[Quote],
        *,
        complete: bool = True,
        held: Sequence[tuple[Quote, str]] = (),
        origin: str = "",
        now: datetime | None = None,
    ) -> Added:
        """Stores what one source saw: all of it or nothing, the pointers to the latest prices last.

        complete: the quotes are all that the source offers, so that what is missing is gone. held: quotes that
        checks refused, with the reason; what they would replace stays as it was.
        """
        with self.writing() as connection:
            writer = bulk.Writer(connection, source, now or datetime.now(UTC), origin)
            writer.add(quotes)
            quarantined = self._hold(connection, writer, held)
            gone = writer.bury({identity(quote) for quote, _ in held}) if complete else 0
            writer.finish()
            return Added(writer.new, writer.changed, writer.same, gone, quarantined)

    @contextmanager
    def writing(self) -> Generator["Connection"]:
        """One transaction that holds the write lock. Raises Unavailable when the database does not answer."""
        with (
            connect.answering(self.engine),
            self.engine.connect().execution_options(writes=True) as connection,
            connection.begin(),
        ):
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql("LOCK TABLE offers IN SHARE ROW EXCLUSIVE MODE")
            yield connection

    def _hold(self, connection: "Connection", writer: bulk.Writer, held: Sequence[tuple[Quote, str]]) -> int:
        """Puts refused quotes aside, each price once however often it is seen again, even after it was dropped."""
        from sqlalchemy import insert, select

        from perrun.prices.book.schema import quarantine

        known = select(quarantine.c.quote).where(quarantine.c.decision.in_(("", "dropped")))
        seen = {(identity(quote), quote.usd_per_hour) for quote in map(unpacked, connection.scalars(known))}
        fresh = [pair for pair in held if (identity(pair[0]), pair[0].usd_per_hour) not in seen]
        if fresh:
            rows = [
                {"batch_id": writer.batch_id, "quote": packed(quote), "reason": reason, "decision": ""}
                for quote, reason in fresh
            ]
            connection.execute(insert(quarantine), rows)
        return len(held)

    def failed(self, source: str, error: str, now: datetime | None = None) -> None:
        """Notes that a source did not answer; its previous data stay."""
        from sqlalchemy import update

        from perrun.prices.book.schema import sources

        with self.writing() as connection:
            id = bulk.source_id(connection, source)
            values = {"tried_at": now or datetime.now(UTC), "error": error}
            connection.execute(update(sources).where(sources.c.id == id).values(**values))

    @contextmanager
    def reading(self) -> Generator["Connection"]:
        """A connection to ask. Raises Unavailable when the database does not answer."""
        with connect.answering(self.engine), self.engine.connect() as connection:
            yield connection

    # -- asking ----------------------------------------------------------------------------------------------------

    def latest(self, **where: Any) -> list[Quote]:
        """The current price of every offer: of one product from two sources the newer. `where` as in `columns`."""
        return ask.newest(self.quotes(**where))

    def as_of(self, day: date, **where: Any) -> list[Quote]:
        """What was known on a day: for every offer its last price seen up to then, unless it was gone by then."""
        return ask.newest(self.quotes(as_of=day, **where))

    def quotes(self, as_of: date | None = None, **where: Any) -> list[Quote]:
        """Current quotes of all sources beside each other."""
        with self.reading() as connection:
            return ask.quotes(connection, as_of, where)

    def columns(self, as_of: date | None = None, **where: Any) -> dict[str, list[Any]]:
        """The same as columns: usd_per_hour, observed_at and what makes a product (provider, gpu, n_gpus, term, ...).

        where: provider, gpu, term, region, source (lists of names) and n_gpus.
        """
        with self.reading() as connection:
            return ask.columns(connection, as_of, where)

    def history(self, since: date | None = None, **where: Any) -> list[Quote]:
        """Every price ever stored of the offers that `where` selects, oldest first."""
        with self.reading() as connection:
            return ask.history(connection, since, where)

    def sources(self) -> list[SourceState]:
        """What is known of each source that was ever asked or imported."""
        from sqlalchemy import select

        from perrun.prices.book.schema import sources

        asked = select(sources.c.name, sources.c.tried_at, sources.c.stored_at, sources.c.error)
        with self.reading() as connection:
            rows = connection.execute(asked.order_by(sources.c.name)).all()
        return [SourceState(row.name, _utc(row.tried_at), _utc(row.stored_at), row.error) for row in rows]

    def names(self, column: str) -> list[str]:
        """Distinct values of a filter over all offers ever seen, sorted."""
        with self.reading() as connection:
            return ask.names(connection, column)

    def has_batch(self, source: str, origin: str) -> bool:
        """Whether a batch of this origin is stored."""
        with self.reading() as connection:
            return ask.has_batch(connection, source, origin)

    def prices_of(self, source: str) -> dict[tuple[Any, ...], float]:
        """Current price of every offer of a source, by identity: what a jump is measured from."""
        with self.reading() as connection:
            found = ask.quotes(connection, None, {"source": [source]})
        return {identity(quote): quote.usd_per_hour for quote in found}

    # -- quarantine ------------------------------------------------------------------------------------------------

    def held(self) -> list[Held]:
        """Quotes that wait for a decision."""
        with self.reading() as connection:
            return [Held(id, source, unpacked(text), reason) for id, source, text, reason in ask.held(connection)]

    def decide(self, id: int, accept: bool) -> None:
        """Publishes a quote that was held back, or drops it for good. Raises UnknownName."""
        from sqlalchemy import update

        from perrun.prices.book.schema import quarantine

        now = datetime.now(UTC)
        with self.writing() as connection:
            waiting = {row[0]: (row[1], unpacked(row[2])) for row in ask.held(connection)}
            if id not in waiting:
                raise UnknownName(f"no quote {id} waits", hint="perrun prices check lists those that do")
            source, quote = waiting[id]
            if accept:
                writer = bulk.Writer(connection, source, now, f"accepted from quarantine {id}")
                writer.add([quote])
                writer.finish()
            decision = {"decision": "accepted" if accept else "dropped", "decided_at": now}
            connection.execute(update(quarantine).where(quarantine.c.id == id).values(**decision))


def _utc(moment: datetime | None) -> datetime | None:
    """SQLite gives moments back without their zone; they were stored in UTC."""
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment
