"""What the laws are fitted on, and what an answer looks like."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from perrun.errors import InvalidInput, UnknownName
from perrun.terms import Calibration


def calibrate(
    files: list[Path] | None = None, out: Path | None = None, told: Callable[[str], None] | None = None
) -> dict[str, list[Calibration]]:
    """Fit speed and memory on tables of runs; written to calibration.csv and memory_calibration.csv below `out`.

    files: default runs/ of a checkout; told: is called with what happens. A law that has too few runs is left out and
    said. Raises InvalidInput when neither can be fitted, and for a file that is no table of runs.
    """
    from perrun import calibration, runs
    from perrun.calibration import memory, speed
    from perrun.validation import publish

    def say(text: str) -> None:
        if told:
            told(text)

    paths = files or publish.shipped_runs(Path.cwd())
    read = [runs.settings(run) for path in paths for run in runs.read(path)]
    known = [one for one in read if isinstance(one, runs.Settings)]
    laws: dict[str, tuple[Callable[[], list[Calibration]], Callable[[str], str]]] = {
        "calibration": (lambda: speed.fit(read).rows(), speed.source),
        "memory_calibration": (lambda: memory.calibrate(known), lambda _: memory.SOURCE),
    }
    found: dict[str, list[Calibration]] = {}
    refused: list[InvalidInput] = []
    for name, (fit_, source) in laws.items():
        say(f"fitting {name.replace('_', ' of ')}" if "_" in name else "fitting speed")
        try:
            found[name] = fit_()
        except InvalidInput as why:
            refused.append(why)
            say(f"not fitted: {why}")
            continue
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            calibration.write(found[name], source, out / f"{name}.csv")
    if not found:
        raise refused[0]
    return found


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of an answer (plan, estimate, fit, compare) or of a noun. Raises UnknownName."""
    from perrun import terms

    nouns: dict[str, Any] = {
        "plan": terms.PlanAnswer,
        "estimate": terms.Estimate,
        "fit": terms.FitAnswer,
        "compare": terms.Comparison,
        "job": terms.Job,
        "strategy": terms.Strategy,
        "rig": terms.Rig,
        "offer": terms.Offer,
        "gpu": terms.GPU,
        "model": terms.Model,
        "run": terms.Run,
        "calibration": terms.Calibration,
        "source": terms.Source,
    }
    if name.lower() not in nouns:
        raise UnknownName(f"no schema for {name!r}", expected=", ".join(nouns))
    return nouns[name.lower()].model_json_schema()
