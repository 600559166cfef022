"""Where the book lives and how it is opened: SQLite in the user's data folder, or PostgreSQL by PERRUN_DATABASE_URL."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perrun.errors import InvalidInput, Unavailable

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

HEAD = "0002"  # newest revision in migrations/versions; a test compares
_MIGRATION_LOCK = 7_274_620_731  # any number of ours, for PostgreSQL's advisory lock


def engine(url: str) -> "Engine":
    """An engine with the driver and the settings that the book needs. Raises InvalidInput for another database."""
    from sqlalchemy import create_engine, event
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except ArgumentError:
        raise InvalidInput(f"{url!r} is no database URL", expected="sqlite:///FILE or postgresql://...") from None
    if parsed.get_backend_name() == "postgresql":
        return create_engine(parsed.set(drivername="postgresql+psycopg"))
    if parsed.get_backend_name() != "sqlite":
        raise InvalidInput(f"no price book in {parsed.get_backend_name()}", expected="sqlite or postgresql")
    if parsed.database:
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    made = create_engine(parsed)
    event.listen(made, "connect", _settle)
    event.listen(made, "begin", _begin)
    return made


def _settle(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves: the driver would commit before DDL
    for pragma in (
        "journal_mode=WAL",
        "synchronous=NORMAL",
        "busy_timeout=30000",
        "foreign_keys=ON",
        "cache_size=-262144",
        "analysis_limit=1000",
        "wal_autocheckpoint=131072",  # an import touches most pages of the index: write them back once in many
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: "Connection") -> None:
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def migrate(made: "Engine") -> None:
    """Brings the schema to HEAD; at most one process does it. Raises Unavailable for a database that cannot be used."""
    from sqlalchemy import inspect, text

    with answering(made):
        with made.connect() as connection:
            found = ""
            if inspect(connection).has_table("alembic_version"):
                found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar() or ""
        if found > HEAD:
            raise Unavailable(f"the price book was written by a newer perrun ({found})", hint="pip install -U perrun")
        if found != HEAD:
            _upgrade(made)


@contextmanager
def answering(made: "Engine") -> Generator[None]:
    """Says in one line that a database is out of reach, busy, or none. Raises Unavailable."""
    from sqlalchemy.exc import DatabaseError, OperationalError

    try:
        yield
    except DatabaseError as error:
        if type(error) not in (DatabaseError, OperationalError):  # the others are mistakes of ours
            raise
        reason = str(error.orig).strip().splitlines()[0]
        raise Unavailable(
            f"the price book at {made.url.render_as_string(hide_password=True)} does not answer: {reason}",
            hint="check PERRUN_DATABASE_URL, or unset it to use the file in your data folder",
        ) from None


def _upgrade(made: "Engine") -> None:
    import logging

    from alembic import command
    from alembic.config import Config
    from sqlalchemy import text

    logging.getLogger("alembic").setLevel(logging.WARNING)
    config = Config()
    config.set_main_option("script_location", "perrun.prices.book:migrations")
    with made.connect().execution_options(writes=True) as connection, connection.begin():
        if made.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
