"""The fit of what an allocator adds, and the command that writes both fits."""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from perrun import runs
from perrun.calibration import memory as fit
from perrun.errors import InvalidInput
from perrun.facts import tables
from perrun.runs import Settings
from perrun.surfaces import cli

RUNS = Path(__file__).parents[1] / "runs"


@pytest.fixture(scope="module")
def known() -> list[Settings]:
    paths = sorted(path for path in RUNS.glob("*.csv") if path.stem != "speedup_pairs")
    read = [runs.settings(run) for path in paths for run in runs.read(path)]
    return [one for one in read if isinstance(one, Settings)]


def test_the_fit_of_the_shipped_runs_is_the_shipped_file(known: list[Settings]) -> None:
    again = fit.calibrate(known)
    shipped = tables.read("memory_calibration")
    assert [row.parameter for row in again] == [row["parameter"] for row in shipped]
    for ours, row in zip(again, shipped, strict=True):
        assert (str(ours.n), ours.fitted_on) == (row["n"], row["fitted_on"])
        assert ours.value == pytest.approx(float(row["value"]), rel=2e-3)


def test_parameters_are_found_again_in_memory_that_the_law_itself_made(known: list[Settings]) -> None:
    found = fit.rows(known)
    made = dict(zip(fit.PARAMETERS, (0.7, 0.9, 0.5, 2.0, 0.1, 0.5, 1.5), strict=True))
    ratio = np.exp(fit.residuals(np.array(list(made.values())), found))
    exact = [
        fit.Row(**{name: getattr(row, name) for name in fit.Row.__slots__} | {"measured": row.measured * float(r)})
        for row, r in zip(found, ratio, strict=True)
    ]
    again = fit.fit_rows(exact).values
    for name in ("pool_layer", "pool_logits", "pool_slack", "communicator_gib"):
        assert again[name] == pytest.approx(made[name], abs=0.05)


def test_spread_is_the_normal_deviation_whose_90_percent_holds_as_much() -> None:
    drawn = np.random.default_rng(1).normal(0.0, 0.2, 20_000)
    assert fit.spread_90(drawn) == pytest.approx(0.2, rel=0.02)
    # half the weight on values of 0.1 and half on 0.3: nine tenths lie within 0.3
    assert fit.spread_90(np.array([0.1, 0.1, 0.3]), np.array([1.0, 1.0, 2.0])) == round(0.3 / 1.645, 3)


def test_too_few_runs_are_refused_with_their_number(known: list[Settings]) -> None:
    with pytest.raises(InvalidInput, match="5 runs with known reserved or device memory"):
        fit.calibrate([one for one in known if one.run.source == "peft-docs"])


def test_the_command_writes_what_it_can_fit_and_refuses_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = str(RUNS / "nemo-performance-summary.csv")  # 36 runs with a speed, none with memory
    assert cli.run(["calibrate", given, "--out", str(tmp_path)]) == 2
    assert "36 usable runs" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_command_gives_json_and_files_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = str(RUNS / "llm-foundry-benchmarks.csv")  # speed alone
    assert cli.run(["calibrate", given, "--out", str(tmp_path), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)["calibration"]
    with (tmp_path / "calibration.csv").open() as file:
        written = {row["parameter"]: float(row["value"]) for row in csv.DictReader(file)}
    assert {row["parameter"]: pytest.approx(row["value"], rel=1e-4) for row in printed} == written
    assert not (tmp_path / "memory_calibration.csv").exists()


def test_without_scipy_the_extra_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    assert cli.run(["calibrate", str(RUNS / "llm-foundry-benchmarks.csv"), "--out", "/nowhere"]) == 2
    assert "perrun[fit]" in capsys.readouterr().err
