"""The fit: what it refuses, finds again, repeats and promises."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perrun import runs, speed
from perrun.calibration import speed as calibration
from perrun.calibration import write
from perrun.errors import InvalidInput, MissingFact
from perrun.facts import tables
from perrun.speed.step import lines
from perrun.terms import Run

RUNS = Path(__file__).parents[1] / "runs"


@pytest.fixture(scope="module")
def shipped_runs() -> list[Run]:
    return [run for path in sorted(RUNS.glob("*.csv")) if path.stem != "speedup_pairs" for run in runs.read(path)]


@pytest.fixture(scope="module")
def fitted(shipped_runs: list[Run]) -> calibration.Fit:
    return calibration.fit(shipped_runs)


def test_too_few_runs_are_refused_with_their_number(shipped_runs: list[Run]) -> None:
    few = [run for run in shipped_runs if run.source == "nemo-performance-summary"]
    with pytest.raises(InvalidInput, match="36 usable runs"):
        calibration.fit(few)


def test_a_dozen_free_constants_and_no_more() -> None:
    assert len(calibration.NAMES) == len(speed.Law.__slots__) <= 12


def test_the_fit_of_the_shipped_runs_is_the_shipped_file(fitted: calibration.Fit, tmp_path: Path) -> None:
    write(fitted.rows(), calibration.source, tmp_path / "calibration.csv")
    again = (tmp_path / "calibration.csv").read_text(encoding="utf-8").splitlines()
    shipped = tables.read("calibration")
    assert len(again) == len(shipped) + 1
    for line, row in zip(again[1:], shipped, strict=True):
        name, value, _, n, fitted_on = line.split(",")[:5]
        assert (name, n, fitted_on) == (row["parameter"], row["n"], row["fitted_on"])
        assert float(value) == pytest.approx(float(row["value"]), rel=1e-3)


def test_constants_are_found_again_in_runs_that_the_law_itself_made(fitted: calibration.Fit) -> None:
    law = replace(fitted.calibration.law, product=0.80, eager=1.4, launch=1.0e-5)
    made = fitted.data.tokens / sum(lines(fitted.data.work, fitted.data.card, law).values())
    found, errors = calibration.solve(replace(fitted.data, measured=np.asarray(made, dtype=float)))
    for name in ("product", "eager", "launch"):
        assert getattr(found, name) == pytest.approx(getattr(law, name), rel=0.1), name
        assert errors[name] > 0


def test_the_order_of_runs_changes_neither_hash_nor_law(shipped_runs: list[Run], fitted: calibration.Fit) -> None:
    turned = calibration.collect(reversed(shipped_runs))
    assert calibration.fingerprint(turned) == fitted.fitted_on
    law, _ = calibration.solve(turned)
    assert law.product == pytest.approx(fitted.calibration.law.product, rel=1e-3)


def test_one_changed_cell_changes_the_hash(shipped_runs: list[Run], fitted: calibration.Fit) -> None:
    first = fitted.data.questions[0].run
    changed = first.model_copy(update={"columns": first.columns | {"tokens_per_s": "1"}})
    others = [run for run in shipped_runs if run != first]
    assert calibration.fingerprint(calibration.collect([changed, *others])) != fitted.fitted_on


def test_publications_are_left_out_whole_and_the_budgets_hold(fitted: calibration.Fit) -> None:
    error = np.abs(np.expm1(fitted.left_out))
    assert len(error) > 1000
    assert np.median(error) <= 0.10
    assert np.quantile(error, 0.9) <= 0.30


def test_ranges_hold_four_fifths_of_left_out_runs(fitted: calibration.Fit) -> None:
    """Nested: the ranges for a publication come from the residuals of all others."""
    source, group = np.array(fitted.data.source), np.array(fitted.data.group)
    inside = np.zeros(len(source), dtype=bool)
    for name in sorted(set(fitted.data.source)):
        out = source == name
        found = calibration.ranges(group[~out].tolist(), fitted.left_out[~out])
        bounds = np.array([found.get(key, found["all"]) for key in group[out].tolist()])
        ratio = np.exp(-fitted.left_out[out])
        inside[out] = (bounds[:, 0] <= ratio) & (ratio <= bounds[:, 1])
    assert 0.75 <= inside.mean() <= 0.85


def test_a_calibration_that_lacks_a_constant_is_refused() -> None:
    rows = [row for row in tables.read("calibration") if row["parameter"] != "launch"]
    with pytest.raises(MissingFact, match="launch"):
        speed.parse(rows)


def test_a_row_without_speed_or_with_a_doubt_is_not_fitted(shipped_runs: list[Run]) -> None:
    data = calibration.collect(shipped_runs)
    assert all(asked.measured.tokens_per_s for asked in data.questions)
    assert not any("[suspect]" in asked.run.columns["notes"] for asked in data.questions)
