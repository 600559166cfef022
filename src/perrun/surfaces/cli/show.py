"""Rows for people and for programs: one list of columns, four ways to print it."""

import csv
import io
import json
import sys
from collections.abc import Sequence
from typing import Any


def rows(columns: Sequence[str], table: Sequence[Sequence[Any]], output: dict[str, Any], title: str = "") -> None:
    """Prints a table as --csv, --markdown or, for people, drawn; numbers are already formatted."""
    if output.get("csv"):
        print(as_csv(columns, table), end="")
    elif output.get("markdown"):
        print(as_markdown(columns, table), end="")
    else:
        draw(columns, table, title)


def as_csv(columns: Sequence[str], table: Sequence[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(table)
    return out.getvalue()


def as_markdown(columns: Sequence[str], table: Sequence[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in table]
    return "\n".join(lines) + "\n"


def draw(columns: Sequence[str], table: Sequence[Sequence[Any]], title: str = "") -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    drawn = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        numeric = bool(table) and all(_numeric(row[list(columns).index(name)]) for row in table)
        drawn.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in table:
        drawn.add_row(*(str(cell) for cell in row))
    terminal = sys.stdout.isatty()
    Console(width=None if terminal else 200, highlight=False, soft_wrap=not terminal).print(drawn)


def _numeric(cell: Any) -> bool:
    return str(cell)[:1] in "0123456789-$~" or cell == ""


def as_json(answer: Any) -> None:
    """Prints a noun or plain data as JSON."""
    if hasattr(answer, "model_dump_json"):
        print(answer.model_dump_json(indent=2))
    else:
        print(json.dumps(answer, indent=2, default=str))
