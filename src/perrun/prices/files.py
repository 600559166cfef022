"""Price files that people write: CSV with a header, or YAML with a list of the same fields.

A file is read whole and every mistake is found at once: line, column, what is allowed.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, cast

from perrun.errors import InvalidInput
from perrun.prices.cells import KINDS, Wrong
from perrun.prices.quote import FIELDS, Quote

COLUMNS = tuple(KINDS)
REQUIRED = ("provider", "gpu", "n_gpus", "observed_at")
HOURS_PER_YEAR = 8766  # 365.25 days


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a file."""

    line: int
    column: str
    what: str
    allowed: str

    def __str__(self) -> str:
        where = f"line {self.line}" + (f", {self.column}" if self.column else "")
        return f"{where}: {self.what}; allowed: {self.allowed}"


class Reader:
    """Rows of one header to quotes. Cells repeat down a column, so each distinct one is read once."""

    def __init__(self, columns: Sequence[str], source: str = "") -> None:
        self.columns = columns
        self.source = source
        self.known: list[dict[Any, Any]] = [{} for _ in columns]

    def quote(self, cells: Iterable[Any]) -> Quote:
        """Raises Wrong with the column of the first bad cell."""
        found: dict[str, Any] = {}
        for column, cell, known in zip(self.columns, cells, self.known, strict=False):
            if cell == "" or cell is None:
                continue
            try:
                found[column] = known[cell]
            except (KeyError, TypeError):  # TypeError: a list of a YAML file
                value = self._read(column, cell, known)
                if value is not None:
                    found[column] = value
        return _quote(found, self.source)

    def _read(self, column: str, cell: Any, known: dict[Any, Any]) -> Any:
        """The value of a cell that was not met before, None for a blank one."""
        bare = cell.strip() if isinstance(cell, str) else cell
        if bare == "":
            return None
        try:
            value = KINDS[column](bare)
        except Wrong as wrong:
            raise Wrong(wrong.what, wrong.allowed, column) from None
        if isinstance(cell, str):
            known[cell] = value
        return value


def _quote(found: dict[str, Any], source: str) -> Quote:
    for name in REQUIRED:
        if name not in found:
            raise Wrong("is empty", _NEEDED.get(name, f"a {name}"), name)
    get = found.get
    n_gpus, n_nodes = found["n_gpus"], get("n_nodes", 1)
    if n_gpus % n_nodes:
        raise Wrong(f"{n_gpus} GPUs on {n_nodes} nodes", "a divisor of n_gpus", "n_nodes")
    usd = get("usd_per_hour")
    return Quote(
        found["provider"],
        found["gpu"],
        n_gpus,
        usd if usd is not None else _usd_per_hour(found),
        found["observed_at"],
        get("source", source),
        get("term", "on-demand"),
        get("instance", ""),
        get("region", ""),
        n_nodes,
        get("currency", "USD"),
        get("price_per_hour"),
        get("billing_increment_s"),
        get("minimum_s"),
        get("billed_while_stopped", ""),
        get("storage_usd_per_gb_month"),
        get("stopped_storage_usd_per_gb_month"),
        get("egress_usd_per_gb"),
        get("ingress_usd_per_gb"),
        get("deposit_usd"),
        get("boot_s"),
        get("interruption_class", ""),
        get("mtbi_hours"),
        get("block_gpu_hours", ()),
        get("reservation_hours", ()),
        get("ram_gib"),
        get("note", ""),
    )


_NEEDED = {"n_gpus": "a whole number above 0", "observed_at": "the day on which the price was seen, YYYY-MM-DD"}


def _usd_per_hour(found: dict[str, Any]) -> float:
    """US dollars per hour from the columns that say it in another way."""
    price, currency = found.get("price_per_hour"), found.get("currency", "USD")
    if price is None:
        return _owned_usd_per_hour(found)
    if currency == "USD":
        return price
    if "usd_per_currency" not in found or "rate_as_of" not in found:
        missing = "rate_as_of" if "usd_per_currency" in found else "usd_per_currency"
        raise Wrong(f"is empty and the price is in {currency}", "dollars for one unit, with rate_as_of", missing)
    return price * found["usd_per_currency"]


def _owned_usd_per_hour(found: dict[str, Any]) -> float:
    """Depreciation over the hours of use plus power [USD/h of the rig], in other units of the same rig."""
    for one, other in (("purchase_usd", "depreciation_years"), ("power_w", "usd_per_kwh")):
        if (one in found) != (other in found):
            raise Wrong(f"{one} and {other} belong together", "both or neither", other if one in found else one)
    depreciation = energy = 0.0
    if "purchase_usd" in found:
        used = HOURS_PER_YEAR * found["depreciation_years"] * found.get("utilisation", 1.0)
        depreciation = found["purchase_usd"] / used
    if "power_w" in found:
        energy = found["power_w"] / 1000 * found["usd_per_kwh"]
    if not depreciation + energy:
        allowed = "usd_per_hour, or price_per_hour with currency, or purchase_usd with depreciation_years"
        raise Wrong("is empty", allowed, "usd_per_hour")
    return depreciation + energy


def rows(lines: Iterable[str]) -> list[Quote]:
    """Quotes of a CSV that we wrote or tested ourselves. Raises Wrong."""
    table = csv.reader(lines)
    reader = Reader(next(table, cast("list[str]", [])))
    return [reader.quote(cells) for cells in table]


def read(path: str | Path) -> tuple[list[Quote], list[Problem]]:
    """Quotes of a CSV or YAML file and the mistakes in it. Raises InvalidInput when the file cannot be read at all."""
    file = Path(path)
    if not file.is_file():
        raise InvalidInput(f"no price file {path}", expected="a CSV or YAML file with " + ", ".join(REQUIRED))
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} is no UTF-8 text", expected="CSV or YAML in UTF-8") from None
    is_yaml = file.suffix.lower() in (".yaml", ".yml")
    columns, numbered = _yaml_rows(text, str(path)) if is_yaml else _csv_rows(text, str(path))
    reader = Reader(columns, file.name)
    quotes: list[Quote] = []
    problems: list[Problem] = []
    tomorrow = date.today() + timedelta(days=1)  # east of here it may be tomorrow already
    for line, cells in numbered:
        try:
            if len(cells) > len(columns):
                raise Wrong("has more cells than the header", "one cell a column")
            quote = reader.quote(cells)
            if quote.observed_at > tomorrow:
                raise Wrong(f"{quote.observed_at} has not come yet", "the day on which it was seen", "observed_at")
        except Wrong as wrong:
            problems.append(Problem(line, wrong.column, wrong.what, wrong.allowed))
        else:
            quotes.append(quote)
    if not quotes and not problems:
        raise InvalidInput(f"{path} holds no price", expected="at least one row")
    return quotes, problems


Numbered = Iterable[tuple[int, Sequence[Any]]]


def _csv_rows(text: str, path: str) -> tuple[list[str], Numbered]:
    reader = csv.reader(io.StringIO(text))
    columns = [name.strip() for name in next(reader, cast("list[str]", []))]
    missing = [name for name in REQUIRED if name not in columns]
    unknown = [name for name in columns if name not in COLUMNS]
    if missing or unknown or len(set(columns)) < len(columns):
        wrong = f"has no column {missing[0]!r}" if missing else "has a column twice"
        wrong = f"has an unknown column {unknown[0]!r}" if unknown else wrong
        raise InvalidInput(f"{path} line 1 {wrong}", expected="columns " + ", ".join(COLUMNS))
    return columns, ((reader.line_num, cells) for cells in reader if cells)


def _yaml_rows(text: str, path: str) -> tuple[list[str], Numbered]:
    import yaml

    try:
        tree = cast(Any, yaml.compose(text, Loader=yaml.SafeLoader))  # type: ignore[reportUnknownMemberType]
        data: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInput(f"{path} is no YAML: {error}".replace("\n", " "), expected="a list of prices") from None
    if not isinstance(data, list) or not all(isinstance(row, dict) for row in cast("list[Any]", data)):
        raise InvalidInput(f"{path} is no list of prices", expected="a YAML list, one mapping a price")
    found = cast("list[dict[str, Any]]", data)
    lines = [cast(int, node.start_mark.line) + 1 for node in cast("list[Any]", tree.value)]
    for line, row in zip(lines, found, strict=True):
        unknown = [name for name in row if name not in COLUMNS]
        if unknown:
            raise InvalidInput(f"{path} line {line} has an unknown field {unknown[0]!r}", expected=", ".join(COLUMNS))
    numbered = ((line, [row.get(name) for name in COLUMNS]) for line, row in zip(lines, found, strict=True))
    return list(COLUMNS), numbered


def load(path: str | Path) -> list[Quote]:
    """All quotes of a file. Raises InvalidInput with the first mistake, and how many more there are."""
    quotes, problems = read(path)
    if problems:
        raise refusal(path, problems)
    return quotes


def refusal(path: str | Path, problems: list[Problem]) -> InvalidInput:
    """The error for a file with mistakes: the first, and how many more there are."""
    first, more = problems[0], len(problems) - 1
    where = f"line {first.line}" + (f", {first.column}" if first.column else "")
    also = f" (and {more} more)" if more else ""
    return InvalidInput(
        f"{path} {where}: {first.what}{also}",
        expected=first.allowed,
        hint="perrun prices import --partial FILE takes the good rows and lists the rest",
    )


def as_csv(quotes: Iterable[Quote]) -> str:
    """Quotes as a file that `read` takes back."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(FIELDS)
    writer.writerows([_cell(value) for value in quote] for quote in quotes)
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, tuple):
        return ";".join(f"{part:g}" for part in cast("tuple[float, ...]", value))
    return repr(value) if isinstance(value, float) else value
