"""Fixtures of all tests: `book_url`, a new database on SQLite and on PostgreSQL; a web server; a data folder."""

import pytest

from loopback import serving

pytest_plugins = ["postgres"]


@pytest.fixture
def server():
    """A web server on the loopback (loopback.py)."""
    with serving() as running:
        yield running


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """A folder whose data/ is perrun's, with no other book in sight."""
    monkeypatch.setenv("PERRUN_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("PERRUN_DATABASE_URL", raising=False)
    return tmp_path
