"""Price files that people write: CSV with a header, or YAML with a list of the same fields.

A file is read whole and every mistake is found at once: line, column, what is allowed.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, cast

from perrun.errors import InvalidInput, PerrunError
from perrun.prices.offers import card_of
from perrun.prices.quote import FIELDS, TERMS, Quote

# An owned card: what it costs per hour of use follows from these. Utilisation is the share of hours that it works.
OWNED = ("purchase_usd", "depreciation_years", "utilisation", "power_w", "usd_per_kwh")
# Another currency needs a rate with its date, because nothing is converted silently.
CONVERSION = ("usd_per_currency", "rate_as_of")
COLUMNS = (*FIELDS, *OWNED, *CONVERSION, "date_precision")
REQUIRED = ("provider", "gpu", "n_gpus", "observed_at")
HOURS_PER_YEAR = 8766
_MONEY = ("USD", "EUR", "GBP", "CHF", "JPY", "CNY", "INR", "CAD", "AUD", "NZD", "SEK", "NOK", "DKK", "PLN", "CZK")
_MORE_MONEY = ("HUF", "RON", "TRY", "ILS", "KRW", "SGD", "HKD", "TWD", "THB", "IDR", "MYR", "BRL", "MXN", "ZAR", "AED")
_COINS = ("USDT", "USDC", "BTC", "ETH", "SOL", "XMR")
CURRENCIES = frozenset((*_MONEY, *_MORE_MONEY, *_COINS))
_WHOLE = ("n_gpus", "n_nodes")
_POSITIVE = ("usd_per_hour", "price_per_hour", "billing_increment_s", "mtbi_hours", "ram_gib", "usd_per_currency")
_NOT_NEGATIVE = (
    "minimum_s",
    "storage_usd_per_gb_month",
    "egress_usd_per_gb",
    "deposit_usd",
    "boot_s",
    "purchase_usd",
    "power_w",
    "usd_per_kwh",
)
_LISTS = ("block_gpu_hours", "reservation_hours")


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


class _Wrong(Exception):
    """A cell that cannot be: (column, what, allowed)."""


def _empty(value: Any) -> bool:
    return value is None or value == ""


def _number(row: dict[str, Any], name: str, low: float, strict: bool) -> float | None:
    value = row.get(name)
    if _empty(value):
        return None
    try:
        number = float(cast(Any, value))
    except (TypeError, ValueError):
        raise _Wrong(name, f"{value!r} is not a number", "a number") from None
    if not low <= number < float("inf") or (strict and number == low):
        raise _Wrong(name, f"{value} is out of range", f"a number {'above' if strict else 'from'} {low:g}")
    return number


def _whole(row: dict[str, Any], name: str, default: int | None) -> int:
    number = _number(row, name, 0, True)
    if number is None:
        if default is None:
            raise _Wrong(name, "is empty", "a whole number above 0")
        return default
    if number != int(number):
        raise _Wrong(name, f"{row[name]} is not whole", "a whole number above 0")
    return int(number)


def _list(row: dict[str, Any], name: str, kind: Callable[[str], Any]) -> tuple[Any, ...]:
    value = row.get(name)
    if _empty(value):
        return ()
    parts = cast("list[Any]", value) if isinstance(value, (list, tuple)) else str(value).split(";")
    try:
        found = tuple(kind(str(part)) for part in parts)
    except ValueError:
        raise _Wrong(name, f"{value!r} is no list of hours", "hours joined by ';', as 10;24;168") from None
    if not all(hours > 0 for hours in found):
        raise _Wrong(name, f"{value!r} holds an hour count of 0 or less", "hours above 0")
    return found


def _day(row: dict[str, Any], name: str) -> date:
    value = row.get(name)
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        said = "is empty" if _empty(value) else f"{value!r} is no date"
        raise _Wrong(name, said, "the day on which the price was seen, YYYY-MM-DD") from None


def _usd_per_hour(row: dict[str, Any]) -> tuple[float, str, float | None]:
    """(US dollars per hour, currency, price in that currency) from whichever columns say it."""
    currency = str(row.get("currency") or "USD").upper()
    if currency not in CURRENCIES:
        raise _Wrong("currency", f"{currency!r} is not known", ", ".join(sorted(CURRENCIES)))
    usd, price = _number(row, "usd_per_hour", 0, True), _number(row, "price_per_hour", 0, True)
    if usd is not None:
        return usd, currency, price
    if price is not None:
        if currency == "USD":
            return price, currency, price
        rate = _number(row, "usd_per_currency", 0, True)
        if rate is None:
            raise _Wrong(
                "usd_per_currency", f"is empty and the price is in {currency}", "dollars for one unit, with rate_as_of"
            )
        _day(row, "rate_as_of")
        return price * rate, currency, price
    owned = _owned_usd_per_hour(row)
    if owned is None:
        raise _Wrong(
            "usd_per_hour",
            "is empty",
            "usd_per_hour, or price_per_hour with currency, or purchase_usd with depreciation_years",
        )
    return owned, "USD", None


def _owned_usd_per_hour(row: dict[str, Any]) -> float | None:
    """Depreciation over the hours of use plus power [USD/h of the rig]; None when nothing of it is given."""
    bought, years = _number(row, "purchase_usd", 0, False), _number(row, "depreciation_years", 0, True)
    power, kwh = _number(row, "power_w", 0, False), _number(row, "usd_per_kwh", 0, False)
    used = _number(row, "utilisation", 0, True)
    if used is not None and used > 1:
        raise _Wrong("utilisation", f"{used:g} is more than all hours", "a share above 0, at most 1")
    if bought is None and power is None:
        return None
    if (bought is None) != (years is None):
        raise _Wrong("depreciation_years", "purchase_usd and depreciation_years belong together", "both or neither")
    if (power is None) != (kwh is None):
        raise _Wrong("usd_per_kwh", "power_w and usd_per_kwh belong together", "both or neither")
    depreciation = bought / (years * HOURS_PER_YEAR * (used or 1.0)) if bought is not None and years else 0.0
    energy = power / 1000 * kwh if power is not None and kwh is not None else 0.0
    return depreciation + energy


def _checked(row: dict[str, Any], source: str) -> Quote:
    for name in ("provider", "gpu"):
        if _empty(row.get(name)):
            raise _Wrong(name, "is empty", f"a {name}")
    term = str(row.get("term") or "on-demand")
    if term not in TERMS:
        raise _Wrong("term", f"{term!r} is not known", ", ".join(TERMS))
    try:
        card_of(str(row["gpu"]))
    except PerrunError as why:
        raise _Wrong("gpu", why.what, why.expected or why.hint) from None
    usd, currency, price = _usd_per_hour(row)
    n_gpus, n_nodes = _whole(row, "n_gpus", None), _whole(row, "n_nodes", 1)
    if n_gpus % n_nodes:
        raise _Wrong("n_nodes", f"{n_gpus} GPUs on {n_nodes} nodes", "a divisor of n_gpus")
    for name in _POSITIVE:
        _number(row, name, 0, True)
    for name in _NOT_NEGATIVE:
        _number(row, name, 0, False)
    _list(row, "block_gpu_hours", int)
    _list(row, "reservation_hours", float)
    _day(row, "observed_at")
    made = quote({**row, "term": term, "usd_per_hour": usd, "currency": currency, "price_per_hour": price})
    return made if made.source else _with_source(made, source)


def _with_source(made: Quote, source: str) -> Quote:
    from dataclasses import replace

    return replace(made, source=source)


def quote(row: dict[str, Any]) -> Quote:
    """A row whose cells are known to be good, as a quote."""
    get = row.get
    observed = row["observed_at"]
    return Quote(
        provider=row["provider"],
        gpu=row["gpu"],
        n_gpus=int(row["n_gpus"]),
        usd_per_hour=float(row["usd_per_hour"]),
        observed_at=observed if isinstance(observed, date) else date.fromisoformat(observed),
        source=get("source") or "",
        term=get("term") or "on-demand",
        instance=get("instance") or "",
        region=get("region") or "",
        n_nodes=int(get("n_nodes") or 1),
        currency=get("currency") or "USD",
        price_per_hour=_float(get("price_per_hour")),
        billing_increment_s=_float(get("billing_increment_s")),
        minimum_s=_float(get("minimum_s")),
        billed_while_stopped=get("billed_while_stopped") or "",
        storage_usd_per_gb_month=_float(get("storage_usd_per_gb_month")),
        egress_usd_per_gb=_float(get("egress_usd_per_gb")),
        deposit_usd=_float(get("deposit_usd")),
        boot_s=_float(get("boot_s")),
        interruption_class=get("interruption_class") or "",
        mtbi_hours=_float(get("mtbi_hours")),
        block_gpu_hours=_list(row, "block_gpu_hours", int),
        reservation_hours=_list(row, "reservation_hours", float),
        ram_gib=_float(get("ram_gib")),
        note=get("note") or "",
    )


def _float(cell: Any) -> float | None:
    return None if _empty(cell) else float(cell)


def rows_of(handle: Iterable[str]) -> Iterator[dict[str, str]]:
    return csv.DictReader(handle)


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
    numbered = _yaml_rows(text, str(path)) if is_yaml else _csv_rows(text, str(path))
    quotes: list[Quote] = []
    problems: list[Problem] = []
    for line, row in numbered:
        try:
            quotes.append(_checked(row, file.name))
        except _Wrong as wrong:
            problems.append(Problem(line, *wrong.args))
    if not quotes and not problems:
        raise InvalidInput(f"{path} holds no price", expected="at least one row")
    return quotes, problems


def _csv_rows(text: str, path: str) -> list[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text))
    _check_columns(list(reader.fieldnames or []), path)
    found: list[tuple[int, dict[str, Any]]] = []
    for row in reader:
        if None in row:
            raise InvalidInput(
                f"{path} line {reader.line_num} has more cells than the header", expected="one cell a column"
            )
        found.append((reader.line_num, row))
    return found


def _check_columns(names: list[str], path: str) -> None:
    missing = [name for name in REQUIRED if name not in names]
    unknown = [name for name in names if name not in COLUMNS]
    if missing or unknown:
        wrong = f"has no column {missing[0]!r}" if missing else f"has an unknown column {unknown[0]!r}"
        raise InvalidInput(f"{path} line 1 {wrong}", expected="columns " + ", ".join(COLUMNS))


def _yaml_rows(text: str, path: str) -> list[tuple[int, dict[str, Any]]]:
    import yaml

    try:
        tree = cast(Any, yaml.compose(text, Loader=yaml.SafeLoader))  # type: ignore[reportUnknownMemberType]
        data: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInput(f"{path} is no YAML: {error}".replace("\n", " "), expected="a list of prices") from None
    if not isinstance(data, list) or not all(isinstance(row, dict) for row in cast("list[Any]", data)):
        raise InvalidInput(f"{path} is no list of prices", expected="a YAML list, one mapping a price")
    rows = cast("list[dict[str, Any]]", data)
    lines = [cast(int, node.start_mark.line) + 1 for node in cast("list[Any]", tree.value)]
    for line, row in zip(lines, rows, strict=True):
        unknown = [name for name in row if name not in COLUMNS]
        if unknown:
            raise InvalidInput(f"{path} line {line} has an unknown field {unknown[0]!r}", expected=", ".join(COLUMNS))
    return list(zip(lines, rows, strict=True))


def load(path: str | Path) -> list[Quote]:
    """All quotes of a file. Raises InvalidInput with the first mistake, and how many more there are."""
    quotes, problems = read(path)
    if problems:
        first, more = problems[0], len(problems) - 1
        also = f" (and {more} more)" if more else ""
        raise InvalidInput(
            f"{path} {f'line {first.line}, {first.column}'}: {first.what}{also}",
            expected=first.allowed,
            hint="perrun prices import --partial FILE takes the good rows and lists the rest",
        )
    return quotes


def as_csv(quotes: Iterable[Quote]) -> str:
    """Quotes as a file that `read` takes back."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(FIELDS)
    for made in quotes:
        writer.writerow([_cell(getattr(made, name)) for name in FIELDS])
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, tuple):
        return ";".join(f"{part:g}" for part in cast("tuple[float, ...]", value))
    return repr(value) if isinstance(value, float) else value
