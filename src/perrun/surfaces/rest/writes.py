"""Writes to the price book, for who has the key: a price file sent as a body, and asking the sources anew."""

import hmac
import tempfile
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.security import APIKeyHeader
from pydantic import Field
from pydantic_core import to_json

from perrun.errors import InvalidInput, PerrunError
from perrun.prices import desk
from perrun.surfaces.cli.prices.shared import plain
from perrun.surfaces.requests import Name, Strict
from perrun.surfaces.rest.errors import refused
from perrun.surfaces.rest.settings import Settings

REFRESH_S = 120.0
HEADER = APIKeyHeader(name="X-API-Key", auto_error=False)
SourceName = Annotated[str, Query(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}$", description="name of the source")]


class Refused(Exception):
    """A write without the key: holds the answer."""

    def __init__(self, answer: Response) -> None:
        super().__init__()
        self.answer = answer


class RefreshAsked(Strict):
    """Ask price sources anew."""

    source: Annotated[list[Name], Field(max_length=50)] | None = Field(default=None, description="these; none: all")


def allowed(settings: Settings) -> Any:
    """A dependency that lets only requests with the key pass."""

    def check(key: Annotated[str | None, Depends(HEADER)] = None) -> None:
        if not settings.api_key:
            raise Refused(refused(403, "this server takes no writes", hint="its owner sets PERRUN_API_KEY"))
        if key is None or not hmac.compare_digest(key.encode(), settings.api_key.encode()):
            raise Refused(refused(401, "the key is missing or wrong", expected="the header X-API-Key"))

    return Depends(check)


def imported(body: bytes, name: str, partial: bool) -> dict[str, Any]:
    """Stores a price file in the book; the file that the parser reads is ours, whatever the client calls its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "prices.csv"
        file.write_bytes(body)
        with desk.opened() as book:
            try:
                done = desk.import_file(book, file, partial=partial, name=name)
            except PerrunError as error:
                raise InvalidInput(error.what.replace(str(file), name), expected=error.expected) from None
    held = [quote._asdict() | {"reason": reason} for quote, reason in done.held]
    return {"source": done.source, **plain(done.added), "left_out": [plain(one) for one in done.problems], "held": held}


def refreshed(sources: list[str] | None) -> list[dict[str, Any]]:
    with desk.opened() as book:
        return [plain(outcome) for outcome in desk.refreshed(book, sources)]


def add(app: FastAPI, answering: Any, settings: Settings, responses: Any) -> None:
    """The two routes."""
    router = APIRouter(prefix="/v1/prices", dependencies=[allowed(settings)], responses=responses, tags=["writes"])
    csv = {"content": {"text/csv": {"schema": {"type": "string"}}}, "required": True}

    @router.post("/import", openapi_extra={"requestBody": csv})
    async def import_(request: Request, name: SourceName, partial: bool = False) -> dict[str, Any]:  # type: ignore[reportUnusedFunction]
        """Put your own prices into the book: all of a CSV file or nothing; with partial the good rows."""
        body = await request.body()
        done = await answering.run(lambda: imported(body, name, partial), REFRESH_S)
        return Response(to_json(done), media_type="application/json")  # type: ignore[return-value]

    @router.post("/refresh")
    async def refresh(asked: RefreshAsked) -> list[dict[str, Any]]:  # type: ignore[reportUnusedFunction]
        """Ask the price sources anew; one that fails keeps its previous prices."""
        done = await answering.run(lambda: refreshed(asked.source), REFRESH_S)
        return Response(to_json(done), media_type="application/json")  # type: ignore[return-value]

    app.include_router(router)
