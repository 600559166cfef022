"""What the tests of the REST surface share: a client of the app without a network, and a client of a real server."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import httpx

from perrun.surfaces.rest import Settings, application


class Client:
    """Asks an app in this process; every call is a response that the test looks at."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.app = application(settings)

    def ask(self, method: str, path: str, **given: Any) -> httpx.Response:
        async def once() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.request(method, path, **given)

        self.app.state.answering.limiter = None  # belongs to the loop of one call
        return asyncio.run(once())

    def get(self, path: str, **given: Any) -> httpx.Response:
        return self.ask("GET", path, **given)

    def post(self, path: str, json: Any = None, **given: Any) -> httpx.Response:
        return self.ask("POST", path, json=json, **given)


@contextmanager
def served(*flags: str, **environment: str) -> Generator[tuple[str, subprocess.Popen[str], list[str]]]:
    """A real `perrun serve` on a free port: its address, its process, and the lines of its log so far."""
    command = [sys.executable, "-c", "from perrun.surfaces.cli import main; main()", "serve", "--port", "0", *flags]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
    lines: list[str] = []
    ready = threading.Event()
    address: list[str] = []

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            found = re.search(r"running on (http://[\d.]+:\d+)", line)
            if found:
                address.append(found[1])
                ready.set()
        ready.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        ready.wait(30)
        assert address, "".join(lines)
        yield address[0], process, lines
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(10)
        reader.join(5)
