"""One refresh at a time: a row in the book that names its holder and runs out by itself if the holder dies."""

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from perrun.errors import Unavailable

if TYPE_CHECKING:
    from perrun.prices.book import Book


def _me() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def _dead(holder: str) -> bool:
    """Whether a holder on this machine is gone; of another machine we cannot know."""
    host, _, pid = holder.rpartition(":")
    if host != socket.gethostname() or int(pid) == os.getpid():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


@contextmanager
def held(book: "Book", name: str, seconds: float) -> Generator[None]:
    """Holds the lock while the block runs, at most `seconds`. Raises Unavailable when somebody else holds it."""
    take(book, name, seconds)
    try:
        yield
    finally:
        release(book, name)


def take(book: "Book", name: str, seconds: float) -> None:
    """Takes the lock, from a dead or timed-out holder too. Raises Unavailable."""
    from sqlalchemy import delete, insert, select

    from perrun.prices.book.schema import locks

    now = datetime.now(UTC)
    with book.writing() as connection:
        row = connection.execute(select(locks.c.holder, locks.c.until).where(locks.c.name == name)).first()
        if row is not None:
            until = row.until if row.until.tzinfo else row.until.replace(tzinfo=UTC)
            if until > now and not _dead(row.holder):
                raise Unavailable(
                    f"{name} is running already, by {row.holder} until {until:%H:%M:%S} UTC at the latest",
                    hint="wait for it; the prices of the book can be read meanwhile",
                )
            connection.execute(delete(locks).where(locks.c.name == name))
        until = now + timedelta(seconds=seconds)
        connection.execute(insert(locks).values(name=name, holder=_me(), taken_at=now, until=until))


def release(book: "Book", name: str) -> None:
    """Gives the lock back; somebody else's stays."""
    from sqlalchemy import delete

    from perrun.prices.book.schema import locks

    with book.writing() as connection:
        connection.execute(delete(locks).where(locks.c.name == name, locks.c.holder == _me()))
