"""Writing many observations fast: ids are given out here, rows go in by executemany (SQLite) or COPY (PostgreSQL).

One writer at a time holds the write lock of the database, so that ids can be counted up from the largest.
"""

from collections.abc import Iterable
from datetime import date, datetime
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from perrun.prices.quote import FIELDS, IDENTITY, Quote, identity

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

GROWN = 0.1  # share of all observations that a batch adds, from which on the statistics of the tables are renewed
CHUNK = 50_000  # observations kept in memory before they are handed to the database
TERM_COLUMNS = (
    "billing_increment_s",
    "minimum_s",
    "billed_while_stopped",
    "storage_usd_per_gb_month",
    "stopped_storage_usd_per_gb_month",
    "egress_usd_per_gb",
    "ingress_usd_per_gb",
    "deposit_usd",
    "boot_s",
    "interruption_class",
    "mtbi_hours",
    "note",
    "reference",
)
_TEXTS = ("billed_while_stopped", "interruption_class", "note", "reference")
NO_TERMS = tuple("" if name in _TEXTS else None for name in TERM_COLUMNS)
_terms = itemgetter(*map(FIELDS.index, (*TERM_COLUMNS[:-1], "source")))


def _same(day: date) -> Any:
    return day


@cache
def _iso(day: date) -> str:
    return day.isoformat()


def source_id(connection: "Connection", name: str) -> int:
    """Id of a source, made when it is new."""
    from sqlalchemy import insert, select

    from perrun.prices.book.schema import sources

    found = connection.scalar(select(sources.c.id).where(sources.c.name == name))
    if found is None:
        connection.execute(insert(sources).values(name=name, error=""))
        found = connection.scalar(select(sources.c.id).where(sources.c.name == name))
    return cast(int, found)


def insert_rows(
    connection: "Connection", table: "Table", columns: tuple[str, ...], rows: list[tuple[Any, ...]]
) -> None:
    """Rows into a table by the fastest way that the driver has."""
    if not rows:
        return
    names = ", ".join(columns)
    driver = cast(Any, connection.connection.driver_connection)
    if connection.dialect.name == "postgresql":
        with driver.cursor() as cursor, cursor.copy(f"COPY {table.name} ({names}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
    else:
        marks = ", ".join("?" * len(columns))
        driver.executemany(f"INSERT INTO {table.name} ({names}) VALUES ({marks})", rows)


class Writer:
    """One batch of one source inside the caller's transaction."""

    def __init__(self, connection: "Connection", source: str, stored_at: datetime, origin: str) -> None:
        from sqlalchemy import insert

        from perrun.prices.book.schema import batches

        self.connection = connection
        self.stored_at = stored_at
        self.name = source
        self.source = source_id(connection, source)
        self.batch_id = self._next("batches")
        connection.execute(
            insert(batches).values(id=self.batch_id, source_id=self.source, stored_at=stored_at, origin=origin)
        )
        self.new = self.changed = self.same = 0
        self._first = self._observation = self._next("observations")
        self._offer = self._next("offers")
        self._known = self._load_offers()
        self._billing = self._load_billing()
        self._seen: set[int] = set()
        self._last: dict[int, tuple[Any, int]] = {}
        self._rows: list[tuple[Any, ...]] = []
        self._new_offers: list[tuple[Any, ...]] = []
        self._day: Any = _iso if connection.dialect.name == "sqlite" else _same  # SQLite stores days as text

    def _next(self, table: str) -> int:
        from sqlalchemy import text

        return cast(int, self.connection.scalar(text(f"SELECT coalesce(max(id), 0) + 1 FROM {table}")))

    def _load_offers(self) -> dict[tuple[Any, ...], tuple[int, float | None, Any, int | None]]:
        """identity -> (offer id, current price or None if gone, its day as the driver has it, its observation)."""
        wanted = ", ".join(f"o.{name}" for name in IDENTITY)
        driver = cast(Any, self.connection.connection.driver_connection)
        joined = "observations p ON p.id = o.latest_id"
        if self.connection.dialect.name == "postgresql":  # as in ask: step by step, it would rather read all prices
            joined = "LATERAL (SELECT * FROM observations WHERE id = o.latest_id LIMIT 1) p ON true"
        rows = driver.execute(
            f"SELECT {wanted}, o.id, p.usd_per_hour, p.observed_at, o.latest_id"
            f" FROM offers o LEFT JOIN {joined} WHERE o.source_id = {self.source}"
        ).fetchall()
        size = len(IDENTITY)
        return {row[:size]: row[size:] for row in rows}

    def _load_billing(self) -> dict[tuple[Any, ...], int]:
        from sqlalchemy import select

        from perrun.prices.book.schema import billing

        asked = select(*(billing.c[name] for name in TERM_COLUMNS), billing.c.id)
        return {tuple(row[:-1]): row[-1] for row in self.connection.execute(asked)}

    def add(self, quotes: Iterable[Quote]) -> None:
        """Prices. Of two prices of one offer on one day the later in order becomes the current one."""
        for quote in quotes:
            key, terms = identity(quote), _terms(quote)
            if terms[-1] == self.name:
                terms = (*terms[:-1], "")
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = (self._new_offer(key, quote.ram_gib), None, None, None)
                self.new += 1
            elif known[0] not in self._seen:
                self.changed += known[1] != quote.usd_per_hour
                self.same += known[1] == quote.usd_per_hour
            self._seen.add(known[0])
            billing_id = self._billing.get(terms) or self._new_billing(terms)
            self._observe(known, self._day(quote.observed_at), quote.usd_per_hour, quote.price_per_hour, billing_id)

    def _observe(self, known: Any, day: Any, usd: float | None, price: float | None, billing_id: int) -> None:
        id = self._observation
        self._observation += 1
        self._rows.append((id, known[0], self.batch_id, billing_id, day, usd, price))
        before = self._last.get(known[0]) or (known[2], known[3])
        if before[0] is None or day >= before[0]:
            self._last[known[0]] = (day, id)
        if len(self._rows) >= CHUNK:
            self._flush()

    def _flush(self) -> None:
        from perrun.prices.book.schema import observations, offers

        insert_rows(self.connection, offers, ("id", "source_id", *IDENTITY, "ram_gib"), self._new_offers)
        self._new_offers.clear()
        names = ("id", "offer_id", "batch_id", "billing_id", "observed_at", "usd_per_hour", "price_per_hour")
        insert_rows(self.connection, observations, names, self._rows)
        self._rows.clear()

    def _new_offer(self, key: tuple[Any, ...], ram_gib: float | None) -> int:
        id = self._offer
        self._offer += 1
        self._new_offers.append((id, self.source, *key, ram_gib))
        return id

    def _new_billing(self, terms: tuple[Any, ...]) -> int:
        from perrun.prices.book.schema import billing

        id = self._next("billing")
        insert_rows(self.connection, billing, ("id", *TERM_COLUMNS), [(id, *terms)])
        self._billing[terms] = id
        return id

    def bury(self, spared: set[tuple[Any, ...]]) -> int:
        """Marks offers of the source that this batch did not see as gone, but those that were held back."""
        day = self._day(self.stored_at.date())
        gone = [
            known
            for identity, known in self._known.items()
            if known[0] not in self._seen and known[1] is not None and identity not in spared
        ]
        for known in gone:
            billing_id = self._billing.get(NO_TERMS) or self._new_billing(NO_TERMS)
            self._observe(known, max(day, known[2] or day), None, None, billing_id)
        return len(gone)

    def finish(self) -> None:
        """The rest of the rows, what is known of the source, and at last the pointers."""
        from sqlalchemy import text, update

        from perrun.prices.book.schema import sources

        self._flush()
        values = {"tried_at": self.stored_at, "stored_at": self.stored_at, "error": ""}
        self.connection.execute(update(sources).where(sources.c.id == self.source).values(**values))
        self._point()
        if self._observation - self._first > GROWN * self._observation:  # so that the database knows its large tables
            self.connection.execute(text("ANALYZE"))

    def _point(self) -> None:
        moved = [(seen, offer) for offer, (_, seen) in self._last.items()]
        driver = cast(Any, self.connection.connection.driver_connection)
        if self.connection.dialect.name == "postgresql":
            driver.execute(
                "UPDATE offers SET latest_id = moved.seen FROM unnest(%s::bigint[], %s::int[]) AS moved(seen, offer)"
                " WHERE offers.id = moved.offer",
                ([seen for seen, _ in moved], [offer for _, offer in moved]),
            )
        else:
            driver.executemany("UPDATE offers SET latest_id = ? WHERE id = ?", moved)
