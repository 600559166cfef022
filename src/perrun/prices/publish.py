"""What planners read: the book's current offers as one file, replaced at once, so that a plan opens no database."""

import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from perrun.prices import files, place
from perrun.prices.book import Book

_BEGUN = ".begun-"
_ABANDONED_S = 3600.0  # a file that is begun so long ago was left behind by a kill


def publish(book: Book) -> Path:
    """Writes the latest offers into the data folder; a reader sees the old file or the new one, never a part.

    Holds the book's write lock, so that of two that publish at once the later one has the later prices.
    """
    target = place.published(book.url)
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep(target.parent)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=_BEGUN)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file, book.writing():
            file.write(files.as_csv(book.latest()))
            file.flush()
            os.fsync(file.fileno())
            Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return target


def _sweep(folder: Path) -> None:
    for left in folder.glob(f"{_BEGUN}*"):
        with suppress(FileNotFoundError):  # finished or swept by somebody else
            if time.time() - left.stat().st_mtime > _ABANDONED_S:
                left.unlink()
