"""Reading a CSV of measured runs in the evidence schema (runs/SCHEMA.md)."""

import csv
from collections.abc import Iterator
from pathlib import Path

from perrun.errors import InvalidInput
from perrun.terms import Run

REQUIRED = ("model", "method", "gpu", "seq_len", "micro_batch")
OVERFLOW = "(cells beyond the header)"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines(keepends=True)
    except OSError as why:
        raise InvalidInput(f"{path}: cannot be read ({why.strerror})", expected="a CSV file of runs") from why
    except UnicodeDecodeError as why:
        raise InvalidInput(f"{path}: is not UTF-8 text (byte {why.start})", expected="a UTF-8 CSV file") from why


def _header(path: Path, cells: list[str], required: tuple[str, ...]) -> list[str]:
    names = [cell.strip() for cell in cells]
    for name in required:
        if name not in names:
            raise InvalidInput(
                f"{path}: column {name!r} is missing",
                expected="a header with " + ", ".join(required),
                hint="runs/SCHEMA.md lists the columns; an empty cell means not known",
            )
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise InvalidInput(f"{path}: column {twice[0]!r} stands twice in the header", expected="each column once")
    return names


def rows(path: str | Path, required: tuple[str, ...] = REQUIRED) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, columns) of each row; line is the one that the row starts on, the header's being 1.

    Cells are stripped; a missing cell is ''. Cells beyond the header are kept under OVERFLOW, so that the row can be
    refused instead of read with its columns shifted. Raises InvalidInput naming the file and what is wrong with it.
    """
    path = Path(path)
    reader = csv.reader(_lines(path), strict=False)
    names: list[str] | None = None
    start = 1
    try:
        for cells in reader:
            line, start = start, reader.line_num + 1
            if not any(cell.strip() for cell in cells):
                continue
            if names is None:
                names = _header(path, cells, required)
                continue
            columns = {name: cell.strip() for name, cell in zip(names, cells, strict=False) if name}
            columns |= {name: "" for name in names if name and name not in columns}
            if len(cells) > len(names):
                columns[OVERFLOW] = ", ".join(cells[len(names) :])
            yield line, columns
    except csv.Error as why:
        raise InvalidInput(f"{path} line {start}: {why}", expected="a CSV file") from why
    if names is None:
        raise InvalidInput(f"{path}: is empty", expected="a header with " + ", ".join(required))


def read(path: str | Path) -> list[Run]:
    """The runs of a file, extra columns kept. Raises InvalidInput for a file that is no table of runs."""
    path = Path(path)
    return [
        Run(line=line, source=columns.get("source", "") or path.stem, path=str(path), columns=columns)
        for line, columns in rows(path)
    ]
