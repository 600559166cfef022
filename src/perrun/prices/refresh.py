"""A refresh: all sources at once, each failing alone, checked, stored one after the other, published at the end."""

import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import date

from perrun.errors import PerrunError
from perrun.prices import checks, lock, publish
from perrun.prices.book import Added, Book
from perrun.prices.quote import Quote
from perrun.prices.sources.base import Source
from perrun.prices.sources.http import Fetcher, address_of, key_of

TIMEOUT_S = 30.0
STORING_S = 300.0  # how long storing may take after the last answer before another refresh may take the lock
LOCK = "prices refresh"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one source: what changed, or why it did not answer and its previous prices stay."""

    source: str
    seconds: float
    added: Added | None = None
    error: str = ""
    skipped: str = ""
    missing: tuple[str, ...] = ()
    unknown_cards: tuple[str, ...] = ()


@dataclass(slots=True)
class _Answer:
    """What a source's thread hands over; quotes None when it failed."""

    source: Source
    seconds: float
    quotes: list[Quote] | None = None
    error: str = ""
    missing: list[str] = field(default_factory=list[str])


def refresh(
    book: Book,
    sources: Iterable[Source],
    *,
    timeout_s: float = TIMEOUT_S,
    today: date | None = None,
    told: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Asks all sources in parallel and stores what they say; ends within the time-out of one and the time to store.

    told: called with each outcome as it comes, for a progress bar. Raises Unavailable when a refresh is running.
    """
    asked = list(sources)
    with lock.held(book, LOCK, timeout_s + STORING_S):
        outcomes: list[Outcome] = []
        for answer in _ask(asked, timeout_s, today or date.today()):
            outcome = answer if isinstance(answer, Outcome) else _store(book, answer)
            outcomes.append(outcome)
            if told is not None:
                told(outcome)
        publish.publish(book)
    order = [source.name for source in asked]
    return sorted(outcomes, key=lambda outcome: order.index(outcome.source))


def _ask(asked: list[Source], timeout_s: float, today: date) -> Iterable["_Answer | Outcome"]:
    """Answers as they come. A thread that hangs past the deadline is left behind: it holds nothing and stores nothing.

    Daemon threads, because those of an executor would be waited for when the program ends.
    """
    answers: queue.Queue[_Answer] = queue.Queue()
    start = time.monotonic()
    waiting: dict[str, Source] = {}
    for source in asked:
        if source.needs_key and not key_of(source.keys):
            yield Outcome(source.name, 0.0, skipped=f"needs {' or '.join(source.keys)}")
            continue
        waiting[source.name] = source
        work = (source, start + timeout_s, today, answers)
        threading.Thread(target=_work, args=work, name=f"prices-{source.name}", daemon=True).start()
    while waiting:
        try:
            answer = answers.get(timeout=max(start + timeout_s - time.monotonic(), 0.0))
        except queue.Empty:
            break
        waiting.pop(answer.source.name, None)
        yield answer
    for source in waiting.values():
        yield _Answer(source, timeout_s, error=f"did not answer within {timeout_s:g} s")


def _work(source: Source, deadline: float, today: date, answers: "queue.Queue[_Answer]") -> None:
    start = time.monotonic()
    http = Fetcher(source.name, address_of(source.name, source.endpoint), deadline, key_of(source.keys))
    answer = _Answer(source, 0.0)
    try:
        answer.quotes = list(source.parse(source.fetch(http), today))
        answer.missing = http.missing
        if not answer.quotes:
            answer.quotes, answer.error = None, "answers without a single price"
    except PerrunError as error:
        answer.error = _said(error, source.name)
    except Exception as error:  # a source that breaks in an unforeseen way must not take the others with it
        answer.error = f"its answer cannot be read ({type(error).__name__}: {error})"
    answer.seconds = time.monotonic() - start
    answers.put(answer)


def _said(error: PerrunError, source: str) -> str:
    """What went wrong in one line, without the source's name: that stands beside it."""
    expected = f"; expected {error.expected}" if error.expected else ""
    return f"{error.what}{expected}".removeprefix(f"{source}: ").removeprefix(f"{source} ")


def _store(book: Book, answer: _Answer) -> Outcome:
    name = answer.source.name
    if answer.quotes is None:
        book.failed(name, answer.error)
        return Outcome(name, answer.seconds, error=answer.error)
    sifted = checks.sift(answer.quotes, book.prices_of(name))
    added = book.add(name, sifted.good, held=sifted.held, complete=not answer.missing, origin=answer.source.endpoint)
    return Outcome(
        name, answer.seconds, added, missing=tuple(answer.missing), unknown_cards=tuple(sorted(sifted.unknown))
    )
