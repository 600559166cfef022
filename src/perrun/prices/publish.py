"""What planners read: the book's current offers as one file, replaced at once, so that a plan opens no database."""

import os
import tempfile
from pathlib import Path

from perrun.prices import files, snapshot
from perrun.prices.book import Book
from perrun.prices.place import data_folder


def publish(book: Book, folder: Path | None = None) -> Path:
    """Writes the latest offers beside the book; a reader sees the old file or the new one, never a part."""
    target = (folder or data_folder()) / snapshot.PUBLISHED
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".published-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(files.as_csv(book.latest()))
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return target
