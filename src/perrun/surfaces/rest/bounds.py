"""ASGI layers around the app: bodies are bounded in size and time, every request is logged and counted."""

import asyncio
import json
import logging
import time
import uuid
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perrun.surfaces.rest.errors import refused
from perrun.surfaces.rest.settings import Settings

log = logging.getLogger("perrun.serve")
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
IMPORT = "/v1/prices/import"


class Bounded:
    """Reads the body before the app sees the request: too large is 413, too slow 408, whatever the header says."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        most = self.settings.import_bytes if scope["path"] == IMPORT else self.settings.body_bytes
        close = {"Connection": "close"}  # what is left of the body is not read
        try:
            async with asyncio.timeout(self.settings.body_s):
                body = await _read(scope, receive, most)
        except TimeoutError:
            answer = refused(408, "the body came too slowly", expected=f"{self.settings.body_s:g} s", headers=close)
            await answer(scope, receive, send)
            return
        if body is None:
            answer = refused(413, "the body is too large", expected=f"at most {most} bytes", headers=close)
            await answer(scope, receive, send)
            return
        await self.app(scope, _replayed(body, receive), send)


async def _read(scope: Scope, receive: Receive, most: int) -> bytes | None:
    """The whole body; None when it is larger than allowed."""
    length = dict(scope["headers"]).get(b"content-length", b"0")
    if not length.isdigit() or len(length) > 12 or int(length) > most:
        return None
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            return None
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


class Observed:
    """One JSON line in the log and one count per request; what the client sent as a body is never logged."""

    def __init__(self, app: ASGIApp, registry: CollectorRegistry | None) -> None:
        self.app = app
        labels = ("route", "method", "status")
        self.count = Counter("perrun_requests", "requests answered", labels, registry=registry)
        self.seconds = Histogram("perrun_seconds", "time to answer [s]", ("route",), registry=registry, buckets=BUCKETS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        id, started, seen = uuid.uuid4().hex, time.perf_counter(), {"status": 500, "bytes": 0}

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen["status"] = message["status"]
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"x-request-id", id.encode()),
                    (b"x-content-type-options", b"nosniff"),
                ]
            seen["bytes"] += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, told)
        finally:
            self._tell(scope, id, time.perf_counter() - started, seen)

    def _tell(self, scope: Scope, id: str, seconds: float, seen: dict[str, int]) -> None:
        route = getattr(scope.get("route"), "path", "none")  # never the path as sent: labels must be few
        method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD", "OPTIONS") else "other"
        self.count.labels(route, method, str(seen["status"])).inc()
        self.seconds.labels(route).observe(seconds)
        client = scope.get("client") or ("", 0)
        said = {"id": id, "client": client[0], "method": method, "path": scope["path"][:200], "route": route}
        log.info("request", extra={"said": {**said, **seen, "ms": round(1000 * seconds, 2)}})


class JsonLines(logging.Formatter):
    """A record as one line of JSON; line breaks that a client sent cannot forge another line."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "what": record.getMessage(),
            **getattr(record, "said", {}),
        }
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return json.dumps(said)
