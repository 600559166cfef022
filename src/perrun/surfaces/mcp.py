"""The verbs as tools for agents (Model Context Protocol): the same requests, answers and refusals as REST.

A tool answers with one short line of text, which a model reads, and the whole answer as structured content.
"""

import json
from functools import cache
from typing import Any, get_origin

import anyio
from anyio import to_thread
from mcp import MCPError
from mcp.server import Server
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListResourcesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
)
from pydantic import BaseModel, TypeAdapter, ValidationError

from perrun import __version__, terms, verbs
from perrun.errors import PerrunError
from perrun.prices import freshness
from perrun.surfaces.answers import VERBS, Verb, as_json
from perrun.surfaces.cli import complaints

INSTRUCTIONS = (
    "perrun says what a fine-tune costs, on which GPU, how long it takes and whether it fits. Start with `plan` "
    "(or `ask` with a sentence); `estimate` and `fit` are about memory, `compare` about two cards. Every figure has a "
    "range; quote it. Prices are dated: perrun://prices says how old they are."
)
ANSWER_S = 30.0
MOST_SAID = 2000  # characters of the short text
GLOSSARY, PRICES = "perrun://glossary", "perrun://prices"
BY_NAME = {verb.name: verb for verb in VERBS}


def server() -> Server[Any]:
    """The server, for any transport."""
    return Server(
        "perrun",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
        on_list_resources=_list_resources,
        on_read_resource=_read_resource,
    )


def in_rows(verb: Verb) -> bool:
    """Whether the verb's answer is no single object: structured content must be one, so the answer is its `rows`."""
    origin = get_origin(verb.answers) or verb.answers
    return not (isinstance(origin, type) and issubclass(origin, (BaseModel, dict)))


@cache
def tools() -> tuple[Tool, ...]:
    """One tool per verb, with the published schemas."""
    return tuple(
        Tool(
            name=verb.name,
            description=verb.help,
            input_schema=verb.asks.model_json_schema(),
            output_schema=_output_schema(verb),
            annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
        )
        for verb in VERBS
    )


def _output_schema(verb: Verb) -> dict[str, Any]:
    schema = TypeAdapter(verb.answers).json_schema(mode="serialization")
    if not in_rows(verb):
        return schema
    definitions = schema.pop("$defs", {})
    return {"type": "object", "properties": {"rows": schema}, "required": ["rows"], "$defs": definitions}


def _answered(verb: Verb, arguments: dict[str, Any]) -> tuple[str, Any]:
    """The short line and the structured content. Raises PerrunError, and ValidationError for the arguments."""
    answer = verb.answer(verb.asks.model_validate_json(json.dumps(arguments)))
    content = json.loads(as_json(answer))
    return verb.said(answer)[:MOST_SAID], {"rows": content} if in_rows(verb) else content


async def _list_tools(_: Any, __: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=list(tools()))


async def _call_tool(_: Any, asked: CallToolRequestParams) -> CallToolResult:
    """A mistake in what was asked is a result that says so, so that the model can mend it."""
    verb = BY_NAME.get(asked.name)
    if verb is None:
        raise MCPError(INVALID_PARAMS, f"no tool {asked.name!r}: {', '.join(BY_NAME)}")
    try:
        with anyio.fail_after(ANSWER_S):
            said, content = await to_thread.run_sync(_answered, verb, asked.arguments or {}, abandon_on_cancel=True)
    except PerrunError as error:
        return _refusal(error)
    except ValidationError as error:
        return _refusal(complaints.from_validation(error))
    except TimeoutError:
        return CallToolResult(content=[TextContent(text=f"no answer within {ANSWER_S:g} s")], is_error=True)
    return CallToolResult(content=[TextContent(text=said)], structured_content=content)


def _refusal(error: PerrunError) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(text=str(error)[:MOST_SAID])], structured_content=error.to_dict(), is_error=True
    )


async def _list_resources(_: Any, __: PaginatedRequestParams | None) -> ListResourcesResult:
    return ListResourcesResult(
        resources=[
            Resource(uri=GLOSSARY, name="glossary", description="every field with its unit", mime_type="text/markdown"),
            Resource(uri=PRICES, name="prices", description="how old the prices are", mime_type="application/json"),
        ]
    )


async def _read_resource(_: Any, asked: ReadResourceRequestParams) -> ReadResourceResult:
    found = {GLOSSARY: ("text/markdown", glossary), PRICES: ("application/json", prices)}.get(str(asked.uri))
    if found is None:
        raise MCPError(INVALID_PARAMS, f"no resource {str(asked.uri)[:200]!r}: {GLOSSARY}, {PRICES}")
    kind, text = found
    body = await to_thread.run_sync(text)
    return ReadResourceResult(contents=[TextResourceContents(uri=str(asked.uri), mime_type=kind, text=body)])


def glossary() -> str:
    """Every noun, and every field with its meaning and unit."""
    lines = ["# Glossary"]
    for noun in vars(terms).values():
        if isinstance(noun, type) and issubclass(noun, terms.Noun) and noun is not terms.Noun:
            lines += ["", f"## {noun.__name__}", "", (noun.__doc__ or "").strip(), ""]
            lines += [f"- `{name}`: {info.description}" for name, info in noun.model_fields.items()]
    return "\n".join(lines) + "\n"


def prices() -> str:
    """The day of the newest price, how many offers there are, and their age in words."""
    offers = verbs.offers()
    newest = max((offer.observed_at for offer in offers), default=None)
    age = freshness.said(offer.observed_at for offer in offers)
    return json.dumps({"prices_as_of": newest and newest.isoformat(), "offers": len(offers), "age": age})


async def over_stdio() -> None:
    """Serves who started this process, over its standard input and output."""
    from mcp.server.stdio import stdio_server

    one = server()
    async with stdio_server() as (read, write):
        await one.run(read, write, one.create_initialization_options())


def over_http(host: str, port: int) -> None:
    """Serves streamable HTTP at /mcp until a signal; no session is kept, so that any worker may answer."""
    import uvicorn

    app = server().streamable_http_app(host=host, json_response=True, stateless_http=True)
    uvicorn.run(app, host=host, port=port, access_log=False, server_header=False, timeout_graceful_shutdown=30)
