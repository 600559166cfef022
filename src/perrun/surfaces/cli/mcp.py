"""perrun mcp: the verbs as tools for agents, over standard input and output, or over HTTP with --http."""

import sys
from typing import Annotated

import typer

from perrun.surfaces.cli.options import application

app = application()


@app.command(help=__doc__)
def mcp(
    http: Annotated[bool, typer.Option("--http", help="streamable HTTP at /mcp instead of stdio")] = False,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="with --http")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="with --http")] = 8001,
) -> None:
    from perrun.errors import Unavailable

    try:
        import anyio

        from perrun.surfaces import mcp as surface
    except ImportError as error:
        raise Unavailable(f"{error.name} is not installed", hint="pip install 'perrun[mcp]'") from None
    if http:
        print(f"perrun serves tools on http://{host}:{port}/mcp", file=sys.stderr)
        surface.over_http(host, port)
    else:
        anyio.run(surface.over_stdio)
