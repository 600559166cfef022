"""Where the user's prices live on this machine."""

import os
from pathlib import Path


def data_folder() -> Path:
    """Where the book lives: PERRUN_DATA_DIR, or the user's data folder of the platform."""
    chosen = os.environ.get("PERRUN_DATA_DIR")
    if chosen:
        return Path(chosen)
    from platformdirs import user_data_path

    return user_data_path("perrun", appauthor=False)


def _own_book() -> str:
    return f"sqlite:///{data_folder() / 'prices.db'}"


def book_url() -> str:
    """Where the book is: PERRUN_DATABASE_URL, or an SQLite file in the user's data folder."""
    return os.environ.get("PERRUN_DATABASE_URL") or _own_book()


def published(url: str) -> Path:
    """Where planners read what a book published; each book has a file of its own."""
    name = "published.csv"
    if url != _own_book():
        from hashlib import sha256

        name = f"published-{sha256(url.encode()).hexdigest()[:12]}.csv"
    return data_folder() / name


def has_book() -> bool:
    """Whether there is a book to ask: a server is named, or the file exists."""
    return bool(os.environ.get("PERRUN_DATABASE_URL")) or (data_folder() / "prices.db").is_file()
