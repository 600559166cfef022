"""A private PostgreSQL for tests: its own cluster in a temporary folder, on a free loopback port, never as root.

Debian: apt-get install postgresql (brings initdb and pg_ctl under /usr/lib/postgresql/*/bin).
"""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def program(name: str) -> str | None:
    """Path of initdb or pg_ctl: from PATH, or the newest of Debian's versions."""
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4]))
    return shutil.which(name) or (str(debian[-1]) if debian else None)


def _account() -> str | None:
    """PostgreSQL refuses to run as root: the account that it gets instead."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def cluster() -> Iterator[str]:
    """URL of a running, empty database."""
    initdb, pg_ctl = program("initdb"), program("pg_ctl")
    if initdb is None or pg_ctl is None:
        raise FileNotFoundError("initdb and pg_ctl are missing: apt-get install postgresql")
    account = _account()
    folder = Path(tempfile.mkdtemp(prefix="perrun-postgres-"))
    if account is not None:
        shutil.chown(folder, account)
    port, data = _free_port(), str(folder / "data")
    settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"

    def call(*command: str) -> None:
        done = subprocess.run(
            command, user=account, cwd=folder, env={**os.environ, "LC_ALL": "C", "HOME": str(folder)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout}")

    try:
        call(initdb, "-D", data, "-U", "perrun", "--auth=trust", "--encoding=UTF8", "--no-sync")
        call(pg_ctl, "-D", data, "-o", settings, "-l", str(folder / "log"), "-w", "start")
        try:
            yield f"postgresql://perrun@127.0.0.1:{port}/postgres"
        finally:
            call(pg_ctl, "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with cluster() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def book_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A new database of either kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/book/prices.db"
        return
    server = request.getfixturevalue("postgres_url")
    name = f"book_{os.getpid()}_{abs(hash(request.node.nodeid)) % 10**9}"
    _sql(server, f"CREATE DATABASE {name}")
    yield f"{server.rpartition('/')[0]}/{name}"
    _sql(server, f"DROP DATABASE {name} WITH (FORCE)")


def _sql(server: str, statement: str) -> None:
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(statement)
