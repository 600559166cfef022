"""The app: one route per verb of the table, and what a server needs beside them."""

import hashlib
import logging
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import prometheus_client
from fastapi import Body, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry, generate_latest, multiprocess
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware

from perrun import __version__, verbs
from perrun.errors import PerrunError
from perrun.surfaces import web
from perrun.surfaces.answers import VERBS, Verb
from perrun.surfaces.rest import errors, writes
from perrun.surfaces.rest.answering import Answering, Busy
from perrun.surfaces.rest.bounds import Bounded, JsonLines, Observed, log
from perrun.surfaces.rest.fresh import kept_fresh
from perrun.surfaces.rest.settings import Settings

ABOUT = """What a fine-tune costs, on which GPU, and whether it fits. Every refusal has the one shape of `ErrorSaid`."""
SAID: dict[int | str, dict[str, Any]] = {
    status: {"model": errors.ErrorSaid} for status in (400, 401, 403, 404, 408, 409, 413, 422, 500, 503)
}
QUESTIONS: dict[int | str, dict[str, Any]] = {status: SAID[status] for status in (400, 404, 408, 409, 413, 422, 503)}


def application(settings: Settings | None = None) -> FastAPI:
    """The ASGI app. settings: what it allows, default Settings()."""
    settings = settings or Settings()
    answering = Answering(settings)
    app = FastAPI(
        title="perrun", version=__version__, description=ABOUT, docs_url=None, redoc_url=None, lifespan=_lifespan
    )
    app.state.answering = answering
    app.state.refresh_s = settings.refresh_s
    for verb in VERBS:
        _route(app, answering, verb)
    writes.add(app, answering, settings, SAID)
    web.add(app, answering)
    registry = None if _several_workers() else CollectorRegistry()
    _upkeep(app, answering, registry)
    _refusals(app)
    app.add_middleware(Bounded, settings=settings)
    app.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=3)
    if settings.cors:
        app.add_middleware(CORSMiddleware, allow_origins=list(settings.cors), allow_methods=["GET", "POST"])
    app.add_middleware(Observed, registry=registry or prometheus_client.REGISTRY)
    return app


def from_environment() -> FastAPI:
    """The app of one worker, with its log as lines of JSON on stderr."""
    log_lines()
    return application(Settings.from_environment())


def log_lines() -> None:
    """Makes the log of this process lines of JSON on stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncGenerator[None]:
    """Before the first request: tables are read, the first plan's imports are made, and the book is there."""
    from perrun.prices import desk

    def warm() -> None:
        verbs.plan("meta-llama/Llama-3.1-8B", limit=1)
        desk.opened().close()

    try:
        await app.state.answering.run(warm)
    except PerrunError as error:
        log.warning("not warm: %s", error)
    async with kept_fresh(app.state.refresh_s):
        yield


def _route(app: FastAPI, answering: Answering, verb: Verb) -> None:
    """A verb's route: GET with a query when it looks something up, POST with a JSON body when it computes."""

    async def endpoint(request: Request, asked: Any) -> Response:
        body = await answering.answer(verb, asked)
        return tagged(request, body) if verb.of_prices else Response(body, media_type="application/json")

    endpoint.__annotations__["asked"] = Annotated[verb.asks, Query() if verb.reads else Body()]
    app.add_api_route(
        f"/v1/{verb.path or verb.name}",
        endpoint,
        methods=["GET" if verb.reads else "POST"],
        response_model=verb.answers,
        responses=QUESTIONS | ({304: {"description": "as If-None-Match has it"}} if verb.of_prices else {}),
        name=verb.name,
        operation_id=verb.name,
        description=verb.help,
    )


def tagged(request: Request, body: bytes) -> Response:
    """Price data with its ETag, or 304 when the client has it. Weak: compressed or not, it says the same."""
    tag = f'W/"{hashlib.sha256(body).hexdigest()[:24]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    had = {one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")}
    if had & {tag.removeprefix("W/"), "*"}:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


def _several_workers() -> bool:
    import os

    return bool(os.environ.get("PROMETHEUS_MULTIPROC_DIR"))


def _upkeep(app: FastAPI, answering: Answering, registry: CollectorRegistry | None) -> None:
    """Routes for who runs the server."""

    async def health() -> dict[str, Any]:
        """Whether it answers, with which version and with prices of which day."""
        newest = await answering.run(lambda: max((one.observed_at for one in verbs.offers()), default=None))
        return {"status": "ok", "version": __version__, "prices_as_of": newest and newest.isoformat()}

    async def metrics() -> Response:
        """Counts and times, for Prometheus."""
        found = registry
        if found is None:
            found = CollectorRegistry()
            multiprocess.MultiProcessCollector(found)  # type: ignore[no-untyped-call]
        return Response(generate_latest(found), media_type="text/plain; version=0.0.4; charset=utf-8")

    app.add_api_route("/health", health, methods=["GET"], tags=["upkeep"])
    app.add_api_route("/metrics", metrics, methods=["GET"], include_in_schema=False)


def _refusals(app: FastAPI) -> None:
    """Every error becomes the one shape."""
    handlers: dict[Any, Callable[[Any], Response]] = {
        PerrunError: errors.of,
        RequestValidationError: lambda error: errors.of(errors.from_validation(error.errors())),
        ValidationError: lambda error: errors.of(errors.from_validation(error.errors())),
        HTTPException: _of_http,
        Busy: lambda error: errors.refused(503, str(error), hint="later again", headers={"Retry-After": "1"}),
        writes.Refused: lambda error: error.answer,
        Exception: lambda _: errors.refused(500, "perrun failed", hint="the log of the server has it by x-request-id"),
    }
    for kind, said in handlers.items():
        app.add_exception_handler(kind, _handler(said))


def _handler(said: Callable[[Any], Response]) -> Callable[[Request, Exception], Response]:
    def handle(_: Request, error: Exception) -> Response:
        return said(error)

    return handle


def _of_http(error: HTTPException) -> Response:
    hint = "GET /openapi.json has every route" if error.status_code in (404, 405) else ""
    return errors.refused(error.status_code, str(error.detail), hint=hint, headers=error.headers)
