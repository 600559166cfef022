"""The fit matrix: orders that must hold, and cells worked by hand."""

import pytest

from perrun import matrix, verbs
from perrun.errors import PerrunError
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
