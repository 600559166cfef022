"""One price source asked over the loopback: what tests of sources share."""

import time
from datetime import date
from pathlib import Path

from perrun.prices import sources
from perrun.prices.sources.http import Fetcher

DATA = Path(__file__).parent / "data" / "prices"
TODAY = date(2026, 12, 1)


def fetcher(name, base, seconds=5.0, key="secret"):
    return Fetcher(name, base, time.monotonic() + seconds, key, waits=(0.01, 0.02))


def read(name, server, **more):
    """(quotes, fetcher) of a source against the server."""
    source, http = sources.every()[name], fetcher(name, server.url, **more)
    return list(source.parse(source.fetch(http), TODAY)), http


def shown(quotes):
    return [(q.provider, q.gpu, q.n_gpus, q.term, round(q.usd_per_hour, 4), q.region) for q in quotes]
