"""Prices that stay fresh while a server runs: sources over a week old are asked again."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from perrun.errors import PerrunError
from perrun.prices import desk
from perrun.surfaces.rest.bounds import log


def due() -> int:
    """Asks the sources that are due; how many were asked. Another worker's or machine's refresh is left to end."""
    with desk.opened() as book:
        names = desk.wanted(book, due=True)
        done = desk.refreshed(book, names) if names else []
    for outcome in done:
        if outcome.error:
            log.warning("%s keeps its old prices: %s", outcome.source, outcome.error)
    return len(done)


@asynccontextmanager
async def kept_fresh(every_s: float) -> AsyncGenerator[None]:
    """Runs `due` in a thread at once and every `every_s` seconds while the body runs; never when that is 0."""
    task = asyncio.create_task(_often(every_s)) if every_s > 0 else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _often(every_s: float) -> None:
    while True:
        try:
            asked = await asyncio.to_thread(due)
        except PerrunError as error:
            log.warning("prices were not refreshed: %s", error)
        else:
            log.info("%d price sources were due and asked", asked)
        await asyncio.sleep(every_s)
