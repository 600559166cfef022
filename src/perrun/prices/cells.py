"""What may stand in each column of a price file, and how a cell becomes a value.

Each kind takes a cell (text of a CSV, or a value of a YAML file) and returns its value or raises Wrong.
"""

import math
from collections.abc import Callable
from datetime import date, datetime
from typing import Any, cast

from perrun.errors import PerrunError
from perrun.prices import tables
from perrun.prices.names import card_of, named
from perrun.prices.quote import TERMS

_MONEY = ("USD", "EUR", "GBP", "CHF", "JPY", "CNY", "INR", "CAD", "AUD", "NZD", "SEK", "NOK", "DKK", "PLN", "CZK")
_MORE_MONEY = ("HUF", "RON", "TRY", "ILS", "KRW", "SGD", "HKD", "TWD", "THB", "IDR", "MYR", "BRL", "MXN", "ZAR", "AED")
_COINS = ("USDT", "USDC", "BTC", "ETH", "SOL", "XMR")
CURRENCIES = frozenset((*_MONEY, *_MORE_MONEY, *_COINS))


class Wrong(Exception):
    """A cell that cannot be: (what, allowed), and the column where the reader does not know it."""

    def __init__(self, what: str, allowed: str, column: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.allowed = allowed
        self.column = column


def _text(cell: Any) -> str:
    return str(cell)


def _number(cell: Any) -> float:
    try:
        if isinstance(cell, bool) or "_" in str(cell):  # float() would take both
            raise ValueError
        return float(cell)
    except (TypeError, ValueError):
        raise Wrong(f"{cell!r} is not a number", "a number") from None


def _above_zero(cell: Any) -> float:
    found = _number(cell)
    if not 0 < found < math.inf:
        raise Wrong(f"{cell} is out of range", "a number above 0")
    return found


def _from_zero(cell: Any) -> float:
    found = _number(cell)
    if not 0 <= found < math.inf:
        raise Wrong(f"{cell} is out of range", "a number from 0")
    return found


def _share(cell: Any) -> float:
    found = _number(cell)
    if not 0 < found <= 1:
        raise Wrong(f"{cell} is no share of all hours", "a number above 0, at most 1")
    return found


def _count(cell: Any) -> int:
    found = _number(cell)
    if not 1 <= found < math.inf or found != int(found):
        raise Wrong(f"{cell} is no count", "a whole number above 0")
    return int(found)


def _hours(cell: Any, kind: Callable[[Any], Any]) -> tuple[Any, ...]:
    parts = cast("list[Any]", cell) if isinstance(cell, (list, tuple)) else str(cell).split(";")
    try:
        return tuple(kind(part) for part in parts)
    except Wrong:
        raise Wrong(f"{cell!r} is no list of hours", "hours above 0 joined by ';', as 10;24;168") from None


def _blocks(cell: Any) -> tuple[int, ...]:
    return _hours(cell, _count)


def _reservations(cell: Any) -> tuple[float, ...]:
    if cell == "capacity-blocks":
        from perrun.physics.billing import CAPACITY_BLOCK_HOURS

        return CAPACITY_BLOCK_HOURS
    return _hours(cell, _above_zero)


def _day(cell: Any) -> date:
    if isinstance(cell, datetime):
        return cell.date()
    if isinstance(cell, date):
        return cell
    try:
        return date.fromisoformat(str(cell))
    except ValueError:
        raise Wrong(f"{cell!r} is no date", "the day on which the price was seen, YYYY-MM-DD") from None


def _term(cell: Any) -> str:
    if cell not in TERMS:
        raise Wrong(f"{cell!r} is not known", ", ".join(TERMS))
    return cast(str, cell)


def _card(cell: Any) -> str:
    name = str(cell)
    try:
        id, unsaid = card_of(name)
    except PerrunError as why:
        raise Wrong(why.what, why.expected or why.hint or "a card of perrun gpus") from None
    if not unsaid:
        return id
    return name if name in tables.unsaid() else named(name)


def _currency(cell: Any) -> str:
    found = str(cell).upper()
    if found not in CURRENCIES:
        raise Wrong(f"{cell!r} is not known", ", ".join(sorted(CURRENCIES)))
    return found


KINDS: dict[str, Callable[[Any], Any]] = {
    "provider": _text,
    "gpu": _card,
    "n_gpus": _count,
    "usd_per_hour": _above_zero,
    "observed_at": _day,
    "source": _text,
    "term": _term,
    "instance": _text,
    "region": _text,
    "n_nodes": _count,
    "currency": _currency,
    "price_per_hour": _above_zero,
    "billing_increment_s": _above_zero,
    "minimum_s": _from_zero,
    "billed_while_stopped": _text,
    "storage_usd_per_gb_month": _from_zero,
    "stopped_storage_usd_per_gb_month": _from_zero,
    "egress_usd_per_gb": _from_zero,
    "ingress_usd_per_gb": _from_zero,
    "deposit_usd": _from_zero,
    "boot_s": _from_zero,
    "interruption_class": _text,
    "mtbi_hours": _above_zero,
    "block_gpu_hours": _blocks,
    "reservation_hours": _reservations,
    "ram_gib": _above_zero,
    "note": _text,
    # An owned card: what it costs per hour of use follows from these. Utilisation is the share of hours it works.
    "purchase_usd": _from_zero,
    "depreciation_years": _above_zero,
    "utilisation": _share,
    "power_w": _from_zero,
    "usd_per_kwh": _from_zero,
    # Another currency needs a rate with its date, because nothing is converted silently.
    "usd_per_currency": _above_zero,
    "rate_as_of": _day,
    "date_precision": _text,
}
