"""Rows for people and for programs: one list of columns, four ways to print it."""

import csv
import io
import json
import re
import sys
from collections.abc import Sequence
from html import escape
from operator import attrgetter
from typing import Any

_FIGURE = re.compile(r"[-~$]?[\d,./]*%?( \(.*\))?$")


def rows(columns: Sequence[str], table: Sequence[Sequence[Any]], output: dict[str, Any], title: str = "") -> bool:
    """Prints a table as --csv, --markdown, --html or, for people, drawn; numbers are already formatted.

    True when it was drawn for people: what else there is to say may follow.
    """
    if output.get("csv"):
        print(as_csv(columns, table), end="")
    elif output.get("markdown"):
        print(as_markdown(columns, table), end="")
    elif output.get("html"):
        print(as_html(columns, table, title), end="")
    else:
        draw(columns, table, title)
        return True
    return False


def as_csv(columns: Sequence[str], table: Sequence[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(table)
    return out.getvalue()


def fields(paths: Sequence[str], nouns: Sequence[Any]) -> None:
    """Prints fields of nouns as CSV, unrounded: 'estimate.memory.device_gib' is the column device_gib."""
    print(as_csv(heads(paths), [values(paths, noun) for noun in nouns]), end="")


def heads(paths: Sequence[str]) -> list[str]:
    """The columns of some fields: the last word of each."""
    return [path.rpartition(".")[2] for path in paths]


def values(paths: Sequence[str], noun: Any) -> list[Any]:
    """Some fields of one noun."""
    return [attrgetter(path)(noun) for path in paths]


def as_markdown(columns: Sequence[str], table: Sequence[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in table]
    return "\n".join(lines) + "\n"


def as_html(columns: Sequence[str], table: Sequence[Sequence[Any]], title: str = "") -> str:
    """A plain table without style, to be put into a page."""
    right = _numeric_columns(columns, table)

    def line(kind: str, cells: Sequence[Any]) -> str:
        style = [' align="right"' if one else "" for one in right]
        return "".join(f"<{kind}{s}>{escape(str(cell))}</{kind}>" for s, cell in zip(style, cells, strict=True))

    caption = f"<caption>{escape(title)}</caption>\n" if title else ""
    body = "".join(f"<tr>{line('td', row)}</tr>\n" for row in table)
    return f"<table>\n{caption}<thead>\n<tr>{line('th', columns)}</tr>\n</thead>\n<tbody>\n{body}</tbody>\n</table>\n"


def draw(columns: Sequence[str], table: Sequence[Sequence[Any]], title: str = "") -> None:
    """A table for people: folded to the width of a terminal, plain lines in a pipe."""
    numeric = _numeric_columns(columns, table)
    if sys.stdout.isatty():
        _drawn_by_rich(columns, table, title, numeric)
        return
    cells = [[str(cell) for cell in row] for row in (columns, *table)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = ["  ".join(map(_padded, row, widths, numeric)).rstrip() for row in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    print("\n".join([title, *lines] if title else lines))


def _padded(cell: str, width: int, right: bool) -> str:
    return cell.rjust(width) if right else cell.ljust(width)


def _drawn_by_rich(columns: Sequence[str], table: Sequence[Sequence[Any]], title: str, numeric: list[bool]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    drawn = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, right in zip(columns, numeric, strict=True):
        drawn.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in table:
        drawn.add_row(*(str(cell) for cell in row))
    Console(highlight=False).print(drawn)


def _numeric_columns(columns: Sequence[str], table: Sequence[Sequence[Any]]) -> list[bool]:
    return [bool(table) and all(_numeric(row[i]) for row in table) for i in range(len(columns))]


def _numeric(cell: Any) -> bool:
    """Whether a cell reads as a figure: '1.36', '0.35 (0.29-0.50)', '$4'; '1x H100' and a date do not."""
    return bool(_FIGURE.match(str(cell)))


def as_json(answer: Any) -> None:
    """Prints a noun or plain data as JSON."""
    if hasattr(answer, "model_dump_json"):
        print(answer.model_dump_json(indent=2))
    else:
        print(json_text(answer), end="")


def json_text(answer: Any) -> str:
    """Plain data as JSON."""
    return json.dumps(answer, indent=2, default=str) + "\n"
