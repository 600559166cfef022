"""The fit matrix: orders that must hold, and cells worked by hand."""

import csv
import io
import xml.etree.ElementTree as ET

import pytest

from perrun import matrix, terms, verbs
from perrun.errors import PerrunError
from perrun.surfaces import cli
from perrun.terms import Rig

LLAMA_70B = "meta-llama/Llama-3.1-70B"
JOB = {"examples": 2000, "tokens_per_example": 2000, "epochs": 2}
PRICES = """provider,gpu,n_gpus,usd_per_hour,observed_at
gpuwithcrypto,A100-SXM4-80GB,1,0.92,2026-10-29
gpuwithcrypto,H100-SXM-80GB,8,18.56,2026-10-29
gpuwithcrypto,B200-180GB,8,36.88,2026-10-29
"""


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    file = tmp_path_factory.mktemp("prices") / "seed.csv"
    file.write_text(PRICES)
    return verbs.fit(LLAMA_70B, JOB, prices=file)


def cell(answer, gpu: str, n: int, method: str):
    return next(c for c in answer.cells if c.rig == Rig(gpu=gpu, n_gpus=n) and c.method == method)


def test_every_method_on_every_rig(answer):
    assert len(answer.cells) == len(matrix.METHODS) * len(matrix.RIGS)


def test_qlora_of_70b_fits_80_gb_as_people_run_it(answer):
    # QLoRA of a 70B on one 80 GB card ran in fms-acceleration-benchmarks (62.4 GiB allocated)
    assert cell(answer, "A100-SXM4-80GB", 1, "qlora").mark == "yes"


def test_bf16_lora_of_70b_never_fits_80_gb(answer):
    # 70.55B x 2 bytes = 131.4 GiB of weights alone
    found = cell(answer, "H100-SXM-80GB", 1, "lora")
    assert found.mark == "no"
    assert found.needs_gib > 131.4
    assert found.why_not == f"needs {found.needs_gib:.1f} GiB, has 79.7"


def test_full_adamw_needs_no_less_than_sixteen_bytes_a_parameter_on_eight(answer):
    # fp32 weights, gradients and two moments under FSDP: 16 x 70.55B / 8 = 131.4 GiB a card
    assert cell(answer, "H100-SXM-80GB", 8, "full, AdamW").needs_gib > 131.4
    assert cell(answer, "B200-180GB", 8, "full, AdamW").mark == "yes"


def test_a_method_that_needs_less_never_fits_worse(answer):
    order = {"no": 0, "tight": 1, "yes": 2}
    for gpu, n in matrix.RIGS:
        marks = [order[cell(answer, gpu, n, m).mark] for m in ("qlora", "lora", "full, 8-bit Adam", "full, AdamW")]
        assert marks == sorted(marks, reverse=True), (gpu, n, marks)


def test_a_cluster_is_billed_whole(answer):
    found = cell(answer, "H100-SXM-80GB", 8, "lora")
    assert found.usd_per_hour == 18.56
    assert found.usd_per_run > 0


def test_two_gpus_of_a_node_that_is_sold_whole_cost_the_node(tmp_path):
    file = tmp_path / "seed.csv"
    file.write_text(PRICES)
    found = verbs.fit(LLAMA_70B, JOB, rigs=["2x H100 SXM", "8x H100 SXM"], prices=file)
    two, eight = cell(found, "H100-SXM-80GB", 2, "qlora"), cell(found, "H100-SXM-80GB", 8, "qlora")
    assert (two.usd_per_hour, two.sold_gpus) == (18.56, 8)
    assert (eight.usd_per_hour, eight.sold_gpus) == (18.56, None)
    speed = verbs.estimate(LLAMA_70B, Rig(gpu="H100-SXM-80GB", n_gpus=2), JOB | {"method": "qlora"}).tokens_per_s
    # 8M tokens at about the speed of two, at the price of eight
    assert two.usd_per_run == pytest.approx(8e6 / speed / 3600 * 18.56, rel=0.35)
    assert two.usd_per_run > 2 * eight.usd_per_run


def test_a_cluster_costs_its_nodes(tmp_path):
    file = tmp_path / "seed.csv"
    file.write_text(PRICES)
    (found,) = {c.usd_per_hour for c in verbs.fit(LLAMA_70B, JOB, rigs=["16x H100 SXM on 2 nodes"], prices=file).cells}
    assert found == 2 * 18.56


def test_headroom_is_what_is_there_less_what_is_needed(answer):
    for one in answer.cells:
        if one.needs_gib is not None:
            assert one.headroom_gib == pytest.approx(one.has_gib - one.needs_gib)
            assert one.headroom_gib >= 0 or one.mark != "yes"


def printed(capsys, *flags: str) -> str:
    assert cli.run(["fit", LLAMA_70B, "--examples", "2000", "--tokens", "2000", "--epochs", "2", *flags]) == 0
    return capsys.readouterr().out


def test_every_form_of_output_has_every_rig_and_mark(capsys, tmp_path):
    file = tmp_path / "seed.csv"
    file.write_text(PRICES)
    flags = ("--prices", str(file))
    found = terms.FitAnswer.model_validate_json(printed(capsys, *flags, "--json"))
    rows = list(csv.DictReader(io.StringIO(printed(capsys, *flags, "--csv"))))
    html, markdown, drawn = (printed(capsys, *flags, *form) for form in (("--html",), ("--markdown",), ()))
    assert [row["mark"] for row in rows] == [one.mark for one in found.cells]
    assert len(ET.fromstring(html).findall(".//tbody/tr")) == len(matrix.RIGS)
    assert len(markdown.splitlines()) == 2 + len(matrix.RIGS)
    for one in found.cells:
        for form in (html, markdown, drawn):
            assert str(one.rig) in form
    for said in ("✓ 75/80 (+5)", "✗ 141/80 (-61)"):
        assert all(said in form for form in (html, markdown, drawn))


def test_a_published_rule_instead_of_our_model(capsys):
    # 16 bytes a parameter: 70.6 x 16 = 1129 GB, which 8 x 141 = 1128 GB do not hold and 8 x 180 = 1440 GB do
    rows = list(csv.DictReader(io.StringIO(printed(capsys, "--rules", "bytes-per-parameter", "--csv"))))
    full = {row["rig"]: row["full_adamw"] for row in rows}
    assert (full["8x H200"], full["8x B200"]) == ("no", "yes")
    assert "<td>8x H200</td>" in printed(capsys, "--rules", "bytes-per-parameter", "--html")


def test_no_price_is_no_cost(answer):
    assert cell(answer, "L40S-48GB", 1, "qlora").usd_per_hour is None


@pytest.mark.parametrize(("text", "n"), [("8x H100 SXM", 8), ("L40S", 1), ("2x 4090", 2)])
def test_rigs_as_people_write_them(text, n):
    assert matrix.rig_of(text).n_gpus == n


@pytest.mark.parametrize("rig", [Rig(gpu="L40S-48GB"), Rig(gpu="H100-SXM-80GB", n_gpus=16, n_nodes=2)])
def test_a_rig_is_read_as_it_is_written(rig):
    assert matrix.rig_of(str(rig)) == rig


def test_a_rig_of_several_nodes_says_so():
    assert str(matrix.rig_of("16x h100 sxm on 2 nodes")) == "16x H100-SXM-80GB on 2 nodes"


def test_a_rig_without_gpus():
    with pytest.raises(PerrunError, match="no GPU"):
        matrix.rig_of("0x L40S")
