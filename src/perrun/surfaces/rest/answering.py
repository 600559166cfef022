"""How a worker answers: in few threads, within a time, and the same question only once while prices stay."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from datetime import date
from typing import Any, TypeVar

import anyio
from anyio import to_thread

from perrun import verbs
from perrun.surfaces.answers import Verb, as_json
from perrun.surfaces.requests import Asked
from perrun.surfaces.rest.settings import Settings

T = TypeVar("T")


class Busy(Exception):
    """Too many questions wait, or one took too long."""


class Answering:
    """One worker's threads and the answers that it keeps."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.kept: OrderedDict[Any, bytes] = OrderedDict()
        self.limiter: anyio.CapacityLimiter | None = None
        self.inside = 0

    async def answer(self, verb: Verb, request: Asked) -> bytes:
        """The answer as JSON. Raises what the verb raises, and Busy."""
        key = None if verb.reads or getattr(request, "as_of", None) else (verb.name, request.model_dump_json(), stamp())
        if key in self.kept:
            self.kept.move_to_end(key)
            return self.kept[key]
        body = await self.run(lambda: as_json(verb.answer(request)))
        if key is not None and self.settings.kept:
            self.kept[key] = body
            while len(self.kept) > self.settings.kept:
                self.kept.popitem(last=False)
        return body

    async def run(self, work: Callable[[], T], seconds: float | None = None) -> T:
        """Runs it in one of the threads. Raises Busy.

        A thread cannot be stopped: work that took too long ends by itself, since every request is bounded.
        """
        if self.limiter is None:  # belongs to the loop that runs
            self.limiter = anyio.CapacityLimiter(self.settings.threads)
        if self.inside >= self.settings.threads + self.settings.waiting:
            raise Busy("too many questions wait")
        self.inside += 1
        try:
            async with asyncio.timeout(seconds or self.settings.answer_s):
                return await to_thread.run_sync(work, limiter=self.limiter, abandon_on_cancel=True)
        except TimeoutError:
            raise Busy(f"no answer within {seconds or self.settings.answer_s:g} s") from None
        finally:
            self.inside -= 1


def stamp() -> tuple[Any, ...]:
    """Changes whenever the prices that plans read do, and every day: prices age."""
    return (date.today(), *verbs.state_of_prices())
