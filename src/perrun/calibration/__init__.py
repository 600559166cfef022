"""What is fitted on measured runs: the dozen constants of the speed law, and what an allocator adds to memory."""

from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from perrun.errors import Unavailable
from perrun.terms import Calibration


def optimize() -> Any:
    """scipy.optimize, which only fits need. Raises Unavailable where it is not installed."""
    try:
        return import_module("scipy.optimize")
    except ModuleNotFoundError as error:
        raise Unavailable("fitting needs scipy", hint="pip install 'perrun[fit]'") from error


def write(rows: Iterable[Calibration], source: Callable[[str], str], path: str | Path) -> None:
    """A table of fitted parameters: parameter, value, standard_error, n, fitted_on, source."""
    text = ["parameter,value,standard_error,n,fitted_on,source"]
    for row in rows:
        error = f"{row.standard_error:.3g}" if row.standard_error else ""
        text.append(f'{row.parameter},{row.value:.5g},{error},{row.n},{row.fitted_on},"{source(row.parameter)}"')
    Path(path).write_text("\n".join(text) + "\n", encoding="utf-8")
