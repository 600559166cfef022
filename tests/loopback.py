"""A web server on the loopback for tests: answers by path, late, in drops, cut off or not at all."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    """What a path answers: the body at once, or after `wait` seconds, or a byte every `drip` seconds, or cut short."""

    body: bytes | str = b""
    status: int = 200
    wait: float = 0.0
    drip: float = 0.0
    cut: bool = False


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Server:
    url: str
    replies: dict[str, Reply | Callable[[Asked], Reply]]
    asked: list[Asked] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def json(self, path: str, data: Any) -> None:
        self.replies[path] = Reply(json.dumps(data))


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(self.command, self.path, headers, self.rfile.read(length))
            server.asked.append(asked)
            found = server.replies.get(self.path) or server.replies.get(self.path.partition("?")[0])
            found = found(asked) if callable(found) else found or Reply("no such page", 404)
            body = found.body.encode() if isinstance(found.body, str) else found.body
            if server.stopping.wait(found.wait):
                return
            try:
                self.send_response(found.status)
                self.send_header("content-length", str(len(body) + (10 if found.cut else 0)))
                self.end_headers()
                for byte in [body] if not found.drip else [body[i : i + 1] for i in range(len(body))]:
                    self.wfile.write(byte)
                    self.wfile.flush()
                    if found.drip and server.stopping.wait(found.drip):
                        return
            except OSError:
                pass  # the client left

        do_GET = do_POST = reply  # noqa: N815 (names that http.server wants)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # of 20 clients at once none waits for the kernel to repeat its first packet


@contextmanager
def serving() -> Iterator[Server]:
    server = Server("", {})
    http = _Http(("127.0.0.1", 0), _handler(server))
    server.url = f"http://127.0.0.1:{http.server_address[1]}"
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield server
    finally:
        server.stopping.set()
        http.shutdown()
        http.server_close()
