"""perrun serve: the verbs over HTTP, on this machine unless --host says otherwise."""

import os
import signal
import sys
import tempfile
from typing import Annotated, Any

import typer

from perrun.surfaces.cli.options import application

app = application()
HOUR_S = 3600.0


@app.command(help=__doc__)
def serve(
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="0.0.0.0 for every interface")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535)] = 8000,
    workers: Annotated[int, typer.Option("--workers", metavar="N", min=1, max=64, help="processes")] = 1,
    cors: Annotated[
        list[str] | None, typer.Option("--cors", metavar="ORIGIN", help="a page that may ask from a browser")
    ] = None,
    body_kib: Annotated[int, typer.Option("--max-body", metavar="KIB", min=1, help="largest question")] = 512,
    seconds: Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="to answer")] = 20.0,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="ask price sources that are over a week old, looking every hour")
    ] = False,
) -> None:
    from perrun.errors import Unavailable

    try:
        import uvicorn

        from perrun.surfaces import rest
    except ImportError as error:
        raise Unavailable(f"{error.name} is not installed", hint="pip install 'perrun[serve]'") from None
    rest.log_lines()
    often = HOUR_S if refresh else 0.0
    allowed = rest.Settings(body_bytes=body_kib * 1024, answer_s=seconds, cors=tuple(cors or ()), refresh_s=often)
    allowed.to_environment()
    if host not in ("127.0.0.1", "localhost", "::1"):
        print(f"perrun answers anyone who reaches {host}: put it behind a proxy with TLS", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="perrun-metrics-") as folder:
        if workers > 1:  # each process counts for itself; /metrics adds them up
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        _run(uvicorn, host, port, workers)


def _run(uvicorn: Any, host: str, port: int, workers: int) -> None:
    """Until a signal: no new request is taken, those that run are answered, and the exit code is 0."""
    signal.signal(signal.SIGTERM, _stopped)  # uvicorn raises it again when all is answered
    print(f"perrun serves on http://{host}:{port} (API: /openapi.json)", file=sys.stderr)
    uvicorn.run(
        "perrun.surfaces.rest:from_environment",
        factory=True,
        host=host,
        port=port,
        workers=workers,
        http="perrun.surfaces.rest.patient:Patient",
        ws="none",
        loop="asyncio",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=30,  # seconds
    )


def _stopped(_: int, __: object) -> None:
    sys.exit(0)
