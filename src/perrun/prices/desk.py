"""What can be asked of the price book: the functions behind `perrun prices`, whichever surface calls them."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from perrun.errors import InvalidInput, UnknownName
from perrun.facts import gpus
from perrun.prices import chart, checks, files, freshness, market, publish, refresh, snapshot, sources, tables
from perrun.prices.book import Added, Book, Held, SourceState
from perrun.prices.files import Problem
from perrun.prices.quote import Quote

WEEK = timedelta(days=7)


def opened(url: str | None = None) -> Book:
    """The user's book with the shipped snapshot in it. Raises InvalidInput for a wrong URL, Unavailable."""
    book = Book(url)
    origin = "snapshot " + hashlib.sha256(tables.text("snapshot.csv").encode()).hexdigest()[:12]
    if not book.has_batch("shipped", origin):
        book.add("shipped", snapshot.shipped(), complete=True, origin=origin)
    return book


@dataclass(frozen=True, slots=True)
class Filter:
    """Which offers: empty is all. gpu: names as people write them; a name that fits several cards means them all."""

    gpu: tuple[str, ...] = ()
    provider: tuple[str, ...] = ()
    term: tuple[str, ...] = ()
    region: tuple[str, ...] = ()
    instance: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    n_gpus: int | None = None


def where(book: Book, chosen: Filter) -> dict[str, Any]:
    """A filter in the book's own names. Raises UnknownName for what the book does not hold."""
    found: dict[str, Any] = {}
    for name in ("provider", "term", "region", "instance", "source"):
        asked = getattr(chosen, name)
        if asked:
            known = book.names(name)
            missing = [value for value in asked if value not in known]
            if missing:
                raise UnknownName(f"no offers of {name} {missing[0]!r}", expected=_some(known))
            found[name] = list(asked)
    if chosen.gpu:
        found["gpu"] = [card for name in chosen.gpu for card in _cards(book, name)]
    if chosen.n_gpus is not None:
        found["n_gpus"] = chosen.n_gpus
    return found


def _some(names: list[str]) -> str:
    return ", ".join(names[:30]) + (f" and {len(names) - 30} more" if len(names) > 30 else "")


def _cards(book: Book, name: str) -> list[str]:
    """The names under which the book holds a card: those that can mean nothing but what was asked for."""
    meant = {card.id for card in gpus.candidates(name)} or {gpus.get(name).id}
    held = [known for known in book.names("gpu") if meant >= {card.id for card in gpus.candidates(known)}]
    if not held:
        raise UnknownName(f"no offers of {name!r}", expected=_some(book.names("gpu")))
    return held


def find(book: Book, chosen: Filter, as_of: date | None = None) -> list[Quote]:
    """Offers, cheapest per GPU-hour first: the latest, or what was known on a day."""
    asked = where(book, chosen)
    found = book.latest(**asked) if as_of is None else book.as_of(as_of, **asked)
    return sorted(found, key=lambda quote: (quote.usd_per_gpu_hour, quote.provider))


def history(book: Book, chosen: Filter, since: date | None = None) -> list[Quote]:
    """Every price that was stored of the chosen offers, oldest first. Raises InvalidInput without a filter."""
    asked = where(book, chosen)
    if not asked:
        raise InvalidInput("a history of everything is no chart", expected="--gpu, --provider or --instance")
    return book.history(since, **asked)


def pictured(book: Book, chosen: Filter, since: date | None = None) -> tuple[list[chart.Series], int]:
    """The history as lines of a chart, and how many offers are left out of it."""
    return chart.series_of(history(book, chosen, since))


def markets(book: Book, chosen: Filter, as_of: date | None = None) -> list[market.Market]:
    """Figures of each card and term, with the change of the median since a week before."""
    asked = where(book, chosen)
    earlier = book.columns((as_of or date.today()) - WEEK, **asked)
    return market.markets(book.columns(as_of, **asked), earlier)


def claim(book: Book, said: str, chosen: Filter, as_of: date | None = None) -> list[market.Tested]:
    """A claim such as 'lowcostgpu: at least 30 % below the median', card by card."""
    return market.check_claim(market.Claim.parse(said), find(book, chosen, as_of))


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did: counts, rows that were left out, prices that wait for a decision."""

    source: str
    added: Added
    problems: list[Problem]
    held: list[tuple[Quote, str]]


def import_file(
    book: Book,
    path: str | Path,
    *,
    partial: bool = False,
    name: str | None = None,
    told: Callable[[Problem], None] | None = None,
) -> Imported:
    """Stores the user's price file as a source of its own; what the file no longer lists is gone.

    told: called with each mistake. Raises InvalidInput at a mistake and stores nothing; with `partial` the good rows go
    in and nothing counts as gone.
    """
    quotes, problems = files.read(path)
    if told:
        for problem in problems:
            told(problem)
    if problems and not partial:
        raise files.refusal(path, problems)
    source = name or f"file {Path(path).name}"
    if source in sources.every() or source == "shipped":
        raise InvalidInput(f"{source!r} is the name of a source", expected="another --name")
    sifted = checks.sift(quotes, {})
    added = book.add(source, sifted.good, held=sifted.held, complete=not problems, origin=str(Path(path).resolve()))
    publish.publish(book)
    return Imported(source, added, problems, sifted.held)


def wanted(book: Book, names: list[str] | None = None, due: bool = False) -> list[str]:
    """The named sources, or all; with `due` those that were not stored within a week. Raises UnknownName."""
    chosen = [source.name for source in sources.chosen(names)]
    if not due:
        return chosen
    stored = {state.name: state.stored_at for state in book.sources()}
    limit = datetime.now(UTC) - WEEK
    return [name for name in chosen if (seen := stored.get(name)) is None or seen <= limit]


def refreshed(
    book: Book,
    names: list[str] | None = None,
    timeout_s: float = refresh.TIMEOUT_S,
    told: Callable[[refresh.Outcome], None] | None = None,
) -> list[refresh.Outcome]:
    """Asks the named sources, or all. Raises UnknownName, and Unavailable when another refresh is running."""
    return refresh.refresh(book, sources.chosen(names), timeout_s=timeout_s, told=told)


def states(book: Book) -> list[tuple[sources.Source | None, SourceState | None]]:
    """Every source that there is or was, with what the book knows of it."""
    known, seen = sources.every(), {state.name: state for state in book.sources()}
    names = [*known, *(name for name in seen if name not in known)]
    return [(known.get(name), seen.get(name)) for name in names]


@dataclass(frozen=True, slots=True)
class Findings:
    """What is wrong with the book: prices that wait, prices that are stored and should not be, sources that fail."""

    held: list[Held]
    doubtful: list[tuple[Quote, str]]
    failing: list[SourceState]
    old: int
    offers: int


def check(book: Book, today: date | None = None) -> Findings:
    """Looks the book over: the same checks that a refresh makes, on what is current now."""
    current = book.latest()
    doubtful = checks.sift(current, {}).held
    old = sum(freshness.age_days(quote.observed_at, today) > freshness.OLD_DAYS for quote in current)
    return Findings(book.held(), doubtful, [state for state in book.sources() if state.error], old, len(current))


def decide(book: Book, accept: Iterable[int] = (), drop: Iterable[int] = ()) -> None:
    """Publishes or drops prices that wait. Raises UnknownName, and InvalidInput for what cannot be published."""
    waiting = {one.id: one.quote for one in book.held()}
    for id in accept:
        if id in waiting and (reason := checks.incomplete(waiting[id])):
            raise InvalidInput(f"price {id} cannot be published: {reason}", hint=f"perrun prices check --drop {id}")
    for id in accept:
        book.decide(id, True)
    for id in drop:
        book.decide(id, False)
    publish.publish(book)
