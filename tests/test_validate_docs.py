"""Accuracy documents: the tables, the drawing and the rivals, on rows whose errors are worked by hand."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from perrun import validation as v
from perrun.errors import InvalidInput
from perrun.runs import Settings
from perrun.terms import Estimate, Memory
from perrun.validation import plot, rivals, tables
from perrun.validation.scores import Outcomes, Point

RUNS = """source,model,method,precision,lora_rank,lora_targets,seq_len,packing,micro_batch,framework,gpu,\
n_gpus,sharding,peak_mem_gb,mem_unit,mem_kind,outcome,tokens_per_s
one,meta-llama/Llama-2-7b-hf,lora,bf16-true,16,attn,4096,yes,1,trl,H100-SXM-80GB,1,none,20,GiB,allocated,ok,1000
two,meta-llama/Llama-2-7b-hf,full,bf16-true,,,4096,yes,1,trl,A100-SXM4-80GB,1,none,25,GiB,reserved,ok,400
two,meta-llama/Llama-2-7b-hf,full,bf16-true,,,4096,yes,1,trl,Z9-1TB,1,none,25,GiB,reserved,ok,400
"""


def estimate(_: Settings) -> Estimate:
    memory = Memory(
        allocated_gib=22,
        reserved_gib=25,
        device_gib=26,
        low_gib=20,
        high_gib=30,
        allocated_low_gib=17,
        allocated_high_gib=25,
        phase="backward",
        lines={"all": 26},
    )
    return Estimate(
        memory=memory,
        host_ram_gib=1,
        tokens_per_s=800,
        tokens_per_s_low=600,
        tokens_per_s_high=1000,
        step_s=1,
        time_lines={"all": 1},
        fits_probability=1,
    )


@pytest.fixture
def rows(tmp_path: Path) -> list[v.Row]:
    path = tmp_path / "runs.csv"
    path.write_text(RUNS, encoding="utf-8")
    return v.evaluate(v.questions([path]), estimate)


RIVALS = """tool,version,date,source,line,allocated_gib,device_gib,tokens_per_s,refused
slow,2.0,2026-01-01,one,2,10,12,500,
slow,2.0,2026-01-01,two,3,,,,RefusalError: no full training
near,1.0,2026-01-01,one,2,19,99,,
near,1.0,2026-01-01,two,3,99,30,,
near,1.0,2026-01-01,two,4,99,30,,
"""


def test_rivals_are_scored_on_what_they_answered(rows: list[v.Row], tmp_path: Path) -> None:
    path = tmp_path / "rivals.csv"
    path.write_text(RIVALS, encoding="utf-8")
    near, slow, slow_speed = rivals.read(path, rows)
    # near: 19 for 20 allocated (5 %), 30 for 25 reserved (20 %); the row that perrun refuses scores nobody
    assert (near.tool, near.figure) == ("near", "memory")
    assert near.score is not None
    assert (near.score.n, near.score.median) == (2, pytest.approx(0.125))
    assert slow.score is not None
    assert (slow.score.n, slow.score.bias) == (1, pytest.approx(-0.5))
    # perrun on the row that slow answered: 22 for 20
    assert slow.ours_there is not None
    assert slow.ours_there.median == pytest.approx(0.1)
    assert slow_speed.figure == "speed"
    assert slow_speed.score is not None
    assert slow_speed.score.median == pytest.approx(0.5)


def test_documents(rows: list[v.Row], tmp_path: Path) -> None:
    (tmp_path / "bench" / "data").mkdir(parents=True)
    (tmp_path / "bench" / "data" / "rivals.csv").write_text(RIVALS, encoding="utf-8")
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{tables.START}\nold\n{tables.END}\nafter\n", encoding="utf-8")
    report = tables.Report(rows, rows, tables.answered(tmp_path, rows))
    outcomes = Outcomes(oom=4, oom_warned=0.75, ok=2, ok_allowed=1, may=0.5)
    written = tables.write(tmp_path, report, outcomes, tables.Pairs({}, {}, None))
    page = (tmp_path / "docs" / "accuracy.md").read_text(encoding="utf-8")
    assert [path.name for path in written] == ["accuracy.md", "accuracy.svg", "README.md"]
    assert "| allocated | 1 | 10.0% | 10.0% |" in page
    assert "| near 1.0 | 2 | 12.5% |" in page
    assert "Of 4 runs that ended out of memory, 75.0% were predicted" in page
    assert "3 rows were read; 2 are predicted, 1 refused" in page
    text = readme.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| speed | 2 |" in text


def test_no_place_for_the_table() -> None:
    with pytest.raises(InvalidInput, match=r"README\.md has no place"):
        tables.between_markers("nothing", "body", "README.md")


def point(predicted: float, measured: float, source: str = "one") -> Point:
    return Point(source, "lora", "g", "trl", "k", predicted, measured, 0, 1e9)


def test_drawing_puts_exact_predictions_on_the_diagonal() -> None:
    drawn = ET.fromstring(plot.svg([point(10, 10), point(40, 10, "two & more")], []))
    space = {"s": "http://www.w3.org/2000/svg"}
    dots = [dot for dot in drawn.findall("s:circle", space) if dot.find("s:title", space) is not None]
    assert len(dots) == 2
    exact, high = ((float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in dots)
    left, bottom = plot.MARGIN[0], plot.MARGIN[1] + plot.SIZE
    assert exact[0] - left == pytest.approx(bottom - exact[1], abs=0.2)
    assert exact[0] == high[0]
    # axes run from 10/1.15 to 40 x 1.15, so a factor of 4 is ln 4 / ln (4 x 1.15 x 1.15) = 0.832 of the side
    assert exact[1] - high[1] == pytest.approx(0.832 * plot.SIZE, abs=0.5)
    names = [text.text for text in drawn.findall("s:text", space)]
    assert "two & more" in names


def test_nothing_to_draw() -> None:
    assert plot.svg([], []) == ""
