"""Nouns as dicts, data frames and HTML."""

import builtins
import json
from typing import Any

import pandas
import pytest

import perrun
from perrun.errors import InvalidInput, Unavailable

LLAMA = "meta-llama/Llama-3.1-8B"


@pytest.fixture(scope="module")
def plan() -> perrun.PlanAnswer:
    return perrun.plan(LLAMA, {"method": "qlora"}, limit=3)


def test_a_dict_is_what_json_says(plan: perrun.PlanAnswer) -> None:
    assert plan.to_dict() == json.loads(plan.model_dump_json())
    assert perrun.PlanAnswer.model_validate(plan.to_dict()) == plan


def test_a_frame_has_a_row_per_plan_and_dotted_columns(plan: perrun.PlanAnswer) -> None:
    frame = plan.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == 3
    assert list(frame["usd"]) == [one.usd for one in plan.plans]
    assert list(frame["offer.rig.gpu"]) == [one.offer.rig.gpu for one in plan.plans]
    assert list(frame["estimate.memory.lines.base weights"]) == [
        one.estimate.memory.lines["base weights"] for one in plan.plans
    ]
    assert frame["usd"].dtype == "float64"


def test_a_frame_of_a_matrix_has_a_row_per_cell() -> None:
    answer = perrun.fit(LLAMA, rigs=["L40S", "8x H100 SXM"])
    frame = answer.to_frame()
    assert len(frame) == len(answer.cells) == 2 * len(answer.methods)
    assert set(frame["mark"]) <= {"yes", "tight", "no"}


def test_any_other_noun_is_one_row() -> None:
    rig = perrun.Rig(gpu="L40S-48GB", n_gpus=2)
    assert rig.to_frame().to_dict("records")[0] | {"interconnect": None} == rig.to_dict() | {"interconnect": None}


def test_polars_gives_the_same_rows(plan: perrun.PlanAnswer) -> None:
    polars = pytest.importorskip("polars")
    frame = plan.to_frame("polars")
    assert isinstance(frame, polars.DataFrame)
    assert frame["usd"].to_list() == list(plan.to_frame("pandas")["usd"])


def test_without_a_library_of_frames_the_way_out_is_said(
    plan: perrun.PlanAnswer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *given: Any, **more: Any) -> Any:
        if name in ("pandas", "polars"):
            raise ImportError(name)
        return real(name, *given, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(Unavailable, match="neither pandas nor polars"):
        plan.to_frame()
    with pytest.raises(InvalidInput, match="numpy"):
        plan.to_frame("numpy")  # type: ignore[arg-type]


def test_a_notebook_shows_the_verdict_and_a_row_per_plan(plan: perrun.PlanAnswer) -> None:
    shown = plan._repr_html_()
    assert shown.startswith("<p>Cheapest: ")
    assert shown.count("<tr>") == 1 + 3
    assert "<th>usd</th>" in shown
    assert f"<td>{plan.plans[0].offer.provider}</td>" in shown


def test_a_notebook_shows_any_noun_and_escapes_it() -> None:
    shown = perrun.Job(model="<script>alert(1)</script>")._repr_html_()
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown
    assert "<tr><td>method</td><td>lora</td></tr>" in shown


def test_every_column_that_a_notebook_shows_is_there(plan: perrun.PlanAnswer) -> None:
    from perrun.terms import display

    matrix = perrun.fit(LLAMA, rigs=["L40S"])
    for answer in (plan, matrix):
        assert set(type(answer).COLUMNS) <= set(display.rows(answer)[0])


def test_long_tables_are_cut_in_a_notebook() -> None:
    from perrun.terms.display import MOST_ROWS

    answer = perrun.plan(LLAMA, limit=MOST_ROWS + 5)
    assert answer._repr_html_().count("<tr>") == 1 + MOST_ROWS
    assert "and 5 more" in answer._repr_html_()


def test_importing_nouns_imports_no_frames() -> None:
    import subprocess
    import sys

    code = "import sys, perrun; perrun.Job; assert not {'pandas', 'polars', 'perrun.terms.display'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
