"""MCP: the verbs as tools, asked by the SDK's own client in memory, over stdio and over streamable HTTP."""

import json
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import jsonschema
import pytest
from mcp import Client, MCPError, StdioServerParameters

from perrun.surfaces import mcp as surface
from perrun.surfaces.answers import VERBS
from rest import Client as Rest
from test_rest import GRID, LLAMA

T = TypeVar("T")
COMMAND = ("-c", "from perrun.surfaces.cli import main; main()", "mcp")


@pytest.fixture(autouse=True, scope="module")
def _own_book(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERRUN_DATA_DIR", str(tmp_path_factory.mktemp("data")))
        yield


def talk(what: Callable[[Client], Awaitable[T]], to: Any = None) -> T:
    async def once() -> T:
        async with Client(to or surface.server()) as client:
            return await what(client)

    return anyio.run(once)


def called(name: str, given: dict[str, Any], to: Any = None) -> Any:
    return talk(lambda client: client.call_tool(name, given), to)


def test_every_verb_is_a_tool_with_the_schemas_of_rest() -> None:
    tools = {tool.name: tool for tool in talk(lambda client: client.list_tools()).tools}
    assert set(tools) == {verb.name for verb in VERBS}
    document = Rest().get("/openapi.json").json()
    for verb in VERBS:
        tool = tools[verb.name]
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        jsonschema.Draft202012Validator.check_schema(tool.output_schema)
        assert tool.description == verb.help
        assert tool.input_schema["additionalProperties"] is False
        if not verb.reads:
            body = document["components"]["schemas"][verb.asks.__name__]
            assert set(tool.input_schema["properties"]) == set(body["properties"])
            assert tool.input_schema.get("required") == body.get("required")


@pytest.mark.parametrize(("verb", "given"), [(verb, given) for verb, given, _ in GRID])
def test_tools_and_rest_answer_alike(verb: str, given: dict[str, Any]) -> None:
    found = next(one for one in VERBS if one.name == verb)
    path = f"/v1/{found.path or found.name}"
    by_rest = (Rest().get(path, params=given) if found.reads else Rest().post(path, given)).json()
    answer = called(verb, given)
    assert not answer.is_error, answer.content[0].text
    content = answer.structured_content
    assert (content["rows"] if surface.in_rows(found) else content) == by_rest
    assert 0 < len(answer.content[0].text) <= surface.MOST_SAID
    jsonschema.validate(content, next(tool for tool in surface.tools() if tool.name == verb).output_schema)


def test_the_text_is_the_verdict() -> None:
    answer = called("plan", {"model": LLAMA, "limit": 1})
    assert answer.content[0].text.startswith(answer.structured_content["verdict"])


@pytest.mark.parametrize(
    ("name", "given", "kind"),
    [
        ("plan", {"model": "Llama-9"}, "unknown_name"),
        ("plan", {"model": "/etc/passwd"}, "unknown_name"),
        ("plan", {}, "invalid_input"),
        ("plan", {"model": LLAMA, "limit": "5"}, "invalid_input"),
        ("plan", {"model": LLAMA, "prices": "/etc/passwd"}, "invalid_input"),
        ("estimate", {"model": LLAMA, "rig": {"gpu": "A100"}}, "ambiguous_name"),
        ("gpus", {"name": "../../x"}, "unknown_name"),
    ],
)
def test_a_mistake_is_a_result_that_says_what_is_allowed(name: str, given: dict[str, Any], kind: str) -> None:
    answer = called(name, given)
    assert answer.is_error
    assert set(answer.structured_content) == {"error", "what", "expected", "hint"}
    assert answer.structured_content["error"] == kind
    assert answer.structured_content["what"].rstrip(".") in answer.content[0].text


def test_an_unknown_tool_or_resource_is_refused() -> None:
    async def ask(client: Client) -> None:
        with pytest.raises(MCPError, match="no tool"):
            await client.call_tool("shell", {"command": "id"})
        with pytest.raises(MCPError, match="no resource"):
            await client.read_resource("file:///etc/passwd")

    talk(ask)


def test_resources_are_the_glossary_and_the_day_of_the_prices() -> None:
    from perrun import terms, verbs

    listed = talk(lambda client: client.list_resources()).resources
    assert {one.uri for one in listed} == {surface.GLOSSARY, surface.PRICES}
    glossary = talk(lambda client: client.read_resource(surface.GLOSSARY)).contents[0].text
    for noun in (terms.Job, terms.Strategy, terms.Estimate, terms.Offer, terms.Plan):
        assert f"## {noun.__name__}" in glossary
        assert all(f"- `{name}`: {info.description}" in glossary for name, info in noun.model_fields.items())
    prices = json.loads(talk(lambda client: client.read_resource(surface.PRICES)).contents[0].text)
    offers = verbs.offers()
    assert prices["offers"] == len(offers)
    assert prices["prices_as_of"] == max(offer.observed_at for offer in offers).isoformat()


def test_over_stdio() -> None:
    command = StdioServerParameters(command=sys.executable, args=list(COMMAND))
    assert called("gpus", {"name": "L40S"}, command).structured_content["rows"]["id"] == "L40S-48GB"


def test_over_streamable_http() -> None:
    import httpx

    command = [sys.executable, *COMMAND, "--http", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = next(found[1] for line in process.stderr if (found := re.search(r"running on (http://\S+)", line)))
        try:
            assert called("gpus", {"name": "L40S"}, f"{address}/mcp").structured_content["rows"]["id"] == "L40S-48GB"
            evil = httpx.post(f"{address}/mcp", json={}, headers={"Host": "evil.example"})
            assert evil.status_code in (403, 421)
        finally:
            process.terminate()
            process.wait(30)
