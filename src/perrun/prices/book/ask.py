"""Questions to the book. Each is one statement whose cost grows with the offers, not with their history."""

from collections.abc import Callable, Iterable, Sequence
from datetime import date
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from perrun.errors import InvalidInput
from perrun.prices.quote import PRODUCT, Quote, product

if TYPE_CHECKING:
    from sqlalchemy import Connection

    Query = Any  # a Select: SQLAlchemy 2.0 and 2.1 disagree on its type parameters

FILTERS = ("provider", "gpu", "term", "region", "n_gpus", "instance", "source")


def _filtered(asked: "Query", where: dict[str, Any]) -> "Query":
    from sqlalchemy import select

    from perrun.prices.book.schema import offers, sources

    for name, wanted in where.items():
        if name not in FILTERS:
            raise InvalidInput(f"no filter {name!r}", expected=", ".join(FILTERS))
        values = [wanted] if isinstance(wanted, (str, int)) else list(wanted or ())
        if values and name == "source":
            asked = asked.where(offers.c.source_id.in_(select(sources.c.id).where(sources.c.name.in_(values))))
        elif values:
            asked = asked.where(offers.c[name].in_(values))
    return asked


def _current(connection: "Connection", wanted: Callable[[Any], list[Any]], as_of: date | None) -> "Query":
    """Offers joined to their price: by the pointer, or by one step into the index for a day.

    wanted: the columns, given the prices. PostgreSQL is told by a lateral join to take these steps, since it would
    rather read all prices; SQLite has none and takes them anyway.
    """
    from sqlalchemy import select, true

    from perrun.prices.book.schema import observations, offers

    past = observations.alias("past")
    if as_of is None:
        one: Query = select(past).where(past.c.id == offers.c.latest_id)
    else:
        one = select(past).where(past.c.offer_id == offers.c.id, past.c.observed_at <= as_of)
        one = one.order_by(past.c.offer_id.desc(), past.c.observed_at.desc(), past.c.id.desc())
    if connection.dialect.name == "postgresql":
        prices = one.limit(1).lateral("price")
        joined = offers.join(prices, true())
    else:
        prices = observations
        which = offers.c.latest_id if as_of is None else one.with_only_columns(past.c.id).limit(1).scalar_subquery()
        joined = offers.join(prices, prices.c.id == which)
    return select(*wanted(prices)).select_from(joined).where(prices.c.usd_per_hour.is_not(None))


def _columns(prices: Any) -> list[Any]:
    """What differs from price to price; sources and billing terms are few and are looked up by their ids."""
    from perrun.prices.book.schema import offers

    return [
        offers.c.source_id,
        prices.c.billing_id,
        offers.c.provider,
        offers.c.gpu,
        offers.c.n_gpus,
        prices.c.usd_per_hour,
        prices.c.observed_at,
        offers.c.term,
        offers.c.instance,
        offers.c.region,
        offers.c.n_nodes,
        offers.c.currency,
        prices.c.price_per_hour,
        offers.c.block_gpu_hours,
        offers.c.reservation_hours,
        offers.c.ram_gib,
    ]


class _Maker:
    """Rows of `_columns` to quotes."""

    def __init__(self, connection: "Connection") -> None:
        from sqlalchemy import select

        from perrun.prices.book.schema import billing, sources

        self.sources = {row[0]: row[1] for row in connection.execute(select(sources.c.id, sources.c.name))}
        terms = select(
            billing.c.id,
            billing.c.billing_increment_s,
            billing.c.minimum_s,
            billing.c.billed_while_stopped,
            billing.c.storage_usd_per_gb_month,
            billing.c.stopped_storage_usd_per_gb_month,
            billing.c.egress_usd_per_gb,
            billing.c.ingress_usd_per_gb,
            billing.c.deposit_usd,
            billing.c.boot_s,
            billing.c.interruption_class,
            billing.c.mtbi_hours,
            billing.c.note,
            billing.c.reference,
        )
        self.terms = {row[0]: tuple(row[1:]) for row in connection.execute(terms)}

    def quotes(self, rows: Iterable[Sequence[Any]]) -> list[Quote]:
        make, known, named = Quote._make, self.terms, self.sources
        found: list[Quote] = []
        for source, billing, *row, blocks, lengths, ram in rows:
            *terms, note, reference = known[billing]
            hours = tuple(int(part) for part in blocks.split(";")) if blocks else ()
            ahead = tuple(float(part) for part in lengths.split(";")) if lengths else ()
            found.append(make((*row[:5], reference or named[source], *row[5:], *terms, hours, ahead, ram, note)))
        return found


def quotes(connection: "Connection", as_of: date | None, where: dict[str, Any]) -> list[Quote]:
    """Current quotes as they stand beside each other, in the order in which offers were first seen."""
    from perrun.prices.book.schema import offers

    asked = _filtered(_current(connection, _columns, as_of), where).order_by(offers.c.id)
    return _Maker(connection).quotes(connection.execute(asked).all())


def columns(connection: "Connection", as_of: date | None, where: dict[str, Any]) -> dict[str, list[Any]]:
    """The figures of a market, column by column; of one product seen by several sources the price seen last."""
    from perrun.prices.book.schema import offers

    figures = ("usd_per_hour", "observed_at")

    def wanted(prices: Any) -> list[Any]:
        return [*(offers.c[name] for name in PRODUCT), *(prices.c[name] for name in figures)]

    rows = connection.execute(_filtered(_current(connection, wanted, as_of), where)).all()
    size, day = len(PRODUCT), itemgetter(-1)
    kept = {row[:size]: row for row in rows}
    if len(kept) < len(rows):
        kept = {row[:size]: row for row in sorted(rows, key=day)}
    names = (*PRODUCT, *figures)
    found = zip(*kept.values(), strict=True) if kept else ((),) * len(names)
    return {name: list(values) for name, values in zip(names, found, strict=True)}


def history(connection: "Connection", since: date | None, where: dict[str, Any]) -> list[Quote]:
    """Every observation of the selected offers, by day; those that say "gone" are left out."""
    from sqlalchemy import select

    from perrun.prices.book.schema import observations, offers

    joined = offers.join(observations, observations.c.offer_id == offers.c.id)
    wanted: Query = select(*_columns(observations)).select_from(joined)
    asked = _filtered(wanted, where).where(observations.c.usd_per_hour.is_not(None))
    if any(where.values()):  # says which table to begin with, whatever the database knows of their sizes
        few: Query = select(offers.c.id)
        asked = asked.where(observations.c.offer_id.in_(_filtered(few, where)))
    if since is not None:
        asked = asked.where(observations.c.observed_at >= since)
    ordered = asked.order_by(observations.c.observed_at, observations.c.id)
    return _Maker(connection).quotes(connection.execute(ordered).all())


def held(connection: "Connection") -> list[tuple[int, str, str, str]]:
    """(id, source, quote as JSON, reason) of what waits for a decision."""
    from sqlalchemy import select

    from perrun.prices.book.schema import batches, quarantine, sources

    joined = quarantine.join(batches, batches.c.id == quarantine.c.batch_id).join(
        sources, sources.c.id == batches.c.source_id
    )
    asked = select(quarantine.c.id, sources.c.name, quarantine.c.quote, quarantine.c.reason).select_from(joined)
    rows = connection.execute(asked.where(quarantine.c.decision == "").order_by(quarantine.c.id))
    return [(row[0], row[1], row[2], row[3]) for row in rows]


def names(connection: "Connection", column: str) -> list[str]:
    """Distinct values of a filter column, sorted."""
    from sqlalchemy import select

    from perrun.prices.book.schema import offers, sources

    wanted = sources.c.name if column == "source" else offers.c[column]
    return sorted(str(value) for value in connection.scalars(select(wanted).distinct()) if value != "")


def has_batch(connection: "Connection", source: str, origin: str) -> bool:
    """Whether a batch of a source came from this origin."""
    from sqlalchemy import select

    from perrun.prices.book.schema import batches, sources

    joined = select(batches.c.id).join(sources, sources.c.id == batches.c.source_id)
    found = joined.where(sources.c.name == source, batches.c.origin == origin).limit(1)
    return connection.scalar(found) is not None


def newest(found: Iterable[Quote]) -> list[Quote]:
    """Of one product seen by several sources the price seen last."""
    kept: dict[tuple[Any, ...], Quote] = {}
    for quote in found:
        key = product(quote)
        if key not in kept or kept[key].observed_at <= quote.observed_at:
            kept[key] = quote
    return list(kept.values())
