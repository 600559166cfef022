"""uvicorn's HTTP/1.1 connection with an end to its patience: headers that drip in for ever hold no connection."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS_S = 5.0  # from the first byte of a request, or the opening of the connection, to the end of its headers


class Patient(H11Protocol):
    """Closes a connection on which no whole request came in time; a request that runs is left alone."""

    late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        running = self.cycle and not self.cycle.response_complete
        self._wait_no_more() if running else self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self.late is None:
            self.late = self.loop.call_later(HEADERS_S, self._give_up)

    def _wait_no_more(self) -> None:
        if self.late is not None:
            self.late.cancel()
            self.late = None

    def _give_up(self) -> None:
        self.late = None
        if not self.transport.is_closing():
            self.transport.close()
