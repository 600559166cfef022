"""One way to fetch for all sources: time-outs that hold even when a server trickles, retries, a limit on size."""

import json
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perrun.errors import Unavailable

if TYPE_CHECKING:
    import httpx

MOST_BYTES = 200 * 10**6
ATTEMPTS = 3
AGENT = "perrun price refresh"


class Transient(Exception):
    """A failure that may pass: worth another attempt."""


@dataclass
class Fetcher:
    """Fetches for one source until `deadline` (time.monotonic seconds).

    base: endpoint instead of the source's own (a mirror, or a test's server); key: its API key, '' if none is needed.
    """

    source: str
    base: str
    deadline: float
    key: str = ""
    waits: tuple[float, float] = (0.2, 2.0)  # shortest and longest pause before another attempt [s]
    missing: list[str] = field(default_factory=list[str])  # parts that did not come; the rest is no full list then
    client: "httpx.Client | None" = field(default=None, repr=False)

    def left(self) -> float:
        """Seconds until the deadline. Raises Unavailable when it has passed."""
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise Unavailable(f"{self.source} did not answer in time")
        return seconds

    def get(self, path: str = "", params: dict[str, Any] | None = None, headers: dict[str, str] | None = None) -> bytes:
        return self._retried("GET", path, params=params, headers=headers)

    def json(self, path: str = "", params: dict[str, Any] | None = None, headers: dict[str, str] | None = None) -> Any:
        return as_json(self.get(path, params, headers), self.source)

    def post_json(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Any:
        return as_json(self._retried("POST", path, json=body, headers=headers), self.source)

    def _retried(self, method: str, path: str, **more: Any) -> bytes:
        """Up to three attempts with growing, jittered pauses, all within the deadline. Raises Unavailable."""
        import tenacity

        attempt = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Transient),
            wait=tenacity.wait_random_exponential(min=self.waits[0], max=self.waits[1]),
            stop=tenacity.stop_after_attempt(ATTEMPTS) | tenacity.stop_before_delay(max(self.left(), 0.0)),
            reraise=True,
        )
        try:
            return attempt(self._once, method, path, **more)
        except Transient as error:
            raise Unavailable(f"{self.source}: {error}", hint="its previous prices stay; try again later") from None

    def _once(self, method: str, path: str, **more: Any) -> bytes:
        import httpx

        url = path if path.startswith("http") else f"{self.base}{path}"
        limit = httpx.Timeout(self.left(), connect=min(self.left(), 10.0))
        client = self.client or httpx.Client(follow_redirects=True)
        more["headers"] = {"user-agent": AGENT} | (more.pop("headers", None) or {})
        try:
            with client.stream(method, url, timeout=limit, **more) as answer:
                self._check(answer)
                return self._body(answer)
        except (httpx.TransportError, httpx.DecodingError) as error:
            self.left()
            raise Transient(f"{type(error).__name__} at {_shown(url)}") from None
        finally:
            if self.client is None:
                client.close()

    def _check(self, answer: "httpx.Response") -> None:
        code, url = answer.status_code, _shown(str(answer.url))
        if code == 429 or code >= 500:
            raise Transient(f"HTTP {code} at {url}")
        if code in (401, 403):
            raise Unavailable(f"{self.source} refuses the key (HTTP {code})", hint="check the key's permissions")
        if code >= 300:
            raise Unavailable(f"{self.source} answers HTTP {code} at {url}", hint="the endpoint may have moved")

    def _body(self, answer: "httpx.Response") -> bytes:
        parts: list[bytes] = []
        size = 0
        for part in answer.iter_bytes():
            self.left()  # a server that trickles resets the read time-out with every byte, but not this
            parts.append(part)
            size += len(part)
            if size > MOST_BYTES:
                raise Unavailable(f"{self.source} sends more than {MOST_BYTES // 10**6} MB")
        return b"".join(parts)


def _shown(url: str) -> str:
    """An address without its query, which may carry a key."""
    return url.split("?", maxsplit=1)[0]


def as_json(text: bytes | str, source: str) -> Any:
    """JSON, or Unavailable when the answer is cut off or something else."""
    try:
        return json.loads(text)
    except ValueError:
        raise Unavailable(f"{source} answers something that is no JSON", hint="its previous prices stay") from None


def key_of(variables: tuple[str, ...]) -> str:
    """The first of the environment variables that is set, '' if none."""
    return next((os.environ[name] for name in variables if os.environ.get(name)), "")


def address_of(source: str, endpoint: str) -> str:
    """The source's endpoint, or the mirror that PERRUN_PRICES_<SOURCE>_URL names."""
    return os.environ.get(f"PERRUN_PRICES_{source.upper().replace('-', '_')}_URL", endpoint).rstrip("/")
