"""Cards by the names that people and programs give them, and their figures against arithmetic."""

import pytest

from perrun.errors import AmbiguousName, UnknownName
from perrun.facts import gpus, tables
from perrun.terms import GPU

# what nvidia-smi and torch print, what people type
NAMES = {
    "NVIDIA H100 80GB HBM3": "H100-SXM-80GB",
    "NVIDIA H100 PCIe": "H100-PCIe-80GB",
    "NVIDIA A100-SXM4-80GB": "A100-SXM4-80GB",
    "NVIDIA A100 80GB PCIe": "A100-PCIe-80GB",
    "NVIDIA H200": "H200-SXM-141GB",
    "NVIDIA GH200 480GB": "GH200-96GB",
    "NVIDIA GeForce RTX 4090": "RTX-4090-24GB",
    "NVIDIA GeForce RTX 4090 Laptop GPU": "RTX-4090-Laptop-16GB",
    "NVIDIA RTX 6000 Ada Generation": "RTX-6000-Ada-48GB",
    "Tesla V100-SXM2-16GB": "V100-SXM2-16GB",
    "Tesla T4": "T4-16GB",
    "H100 SXM": "H100-SXM-80GB",
    "h100sxm": "H100-SXM-80GB",
    "H100-PCIE": "H100-PCIe-80GB",
    "h100 nvl": "H100-NVL-94GB",
    "4090": "RTX-4090-24GB",
    "rtx4090": "RTX-4090-24GB",
    "rtx 4090 d": "RTX-4090-D-24GB",
    "3090ti": "RTX-3090-Ti-24GB",
    "4070 ti super": "RTX-4070-Ti-SUPER-16GB",
    "a6000": "RTX-A6000-48GB",
    "a10": "A10-24GB",
    "A10G": "A10G-24GB",
    "l40": "L40-48GB",
    "l40s": "L40S-48GB",
    "b200": "B200-180GB",
    "gb200": "GB200-186GB",
    "mi300x": "MI300X-192GB",
    "RTX-PRO-4500-32GB": "RTX-PRO-4500-Blackwell-32GB",
    "H100-SXM-96GB (500W)": "H100-SXM-96GB",
}


@pytest.mark.parametrize(("name", "id"), NAMES.items())
def test_a_name_finds_its_card(name: str, id: str) -> None:
    assert gpus.get(name).id == id
    assert gpus.get(name.upper()).id == id
    assert gpus.get(name.lower().replace(" ", "-")).id == id


def test_every_id_and_every_alias_finds_its_own_row() -> None:
    for row in tables.read("gpus"):
        assert gpus.get(row["id"]).id == row["id"]
        assert gpus.get(row["id"].lower()).id == row["id"]
        for alias in (row["marketing_name"], *row["aliases"].split(";")):
            assert row["id"] in [gpu.id for gpu in gpus.candidates(alias)], alias


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("h100", {"H100-SXM-80GB", "H100-PCIe-80GB", "H100-NVL-94GB"}),
        ("A100-80GB", {"A100-SXM4-80GB", "A100-PCIe-80GB"}),
        ("A100-40GB", {"A100-SXM4-40GB", "A100-PCIe-40GB"}),
        ("A100", {"A100-SXM4-40GB", "A100-PCIe-40GB", "A100-SXM4-80GB", "A100-PCIe-80GB"}),
        ("H100-80GB", {"H100-SXM-80GB", "H100-PCIe-80GB"}),
        ("A800-80GB", {"A800-SXM4-80GB", "A800-PCIe-80GB"}),
        ("V100-16GB", {"V100-SXM2-16GB", "V100-PCIe-16GB"}),
        ("h200", {"H200-SXM-141GB", "H200-NVL-141GB"}),
    ],
)
def test_a_name_without_form_factor_is_ambiguous_and_keeps_its_candidates(name: str, ids: set[str]) -> None:
    assert {gpu.id for gpu in gpus.candidates(name)} == ids
    with pytest.raises(AmbiguousName) as caught:
        gpus.get(name)
    assert len(caught.value.candidates) == len(ids)
    for id in ids:
        assert id in str(caught.value)


def test_an_ambiguous_name_says_what_tells_the_candidates_apart() -> None:
    with pytest.raises(AmbiguousName) as caught:
        gpus.get("h100")
    text = str(caught.value)
    for difference in ("3350 GB/s", "2000 GB/s", "SXM5", "94 GB", "756.5 BF16 TFLOPS"):
        assert difference in text


@pytest.mark.parametrize(("name", "suggested"), [("H10O", "H100-SXM-80GB"), ("rtx 4909", "RTX-4090-24GB")])
def test_an_unknown_name_suggests_the_nearest(name: str, suggested: str) -> None:
    with pytest.raises(UnknownName) as caught:
        gpus.get(name)
    assert suggested in caught.value.hint


@pytest.mark.parametrize("name", ["", " ", "-", "gpu", "nvidia"])
def test_a_name_that_says_nothing_is_unknown(name: str) -> None:
    assert gpus.candidates(name) == ()
    with pytest.raises(UnknownName):
        gpus.get(name)


def test_every_row_is_a_valid_gpu() -> None:
    for gpu in gpus.all_gpus():
        assert GPU.model_validate(gpu.model_dump()) == gpu


def _flop_per_sm_and_clock(gpu: GPU) -> int:
    """Dense FP16 tensor FLOP per SM and clock with FP32 accumulate (architecture white papers, SPECS.md)."""
    if gpu.architecture == "Ampere" and gpu.id.startswith(("A100", "A800", "A30")):
        return 2048
    if gpu.architecture == "Hopper":
        return 4096
    if gpu.architecture == "Blackwell" and gpu.id.startswith(("B100", "B200", "GB200", "B300", "GB300")):
        return 8192
    halved = gpu.marketing_name.startswith("GeForce") or gpu.id in ("A10G-24GB", "L20-48GB", "L40-48GB")
    return 512 if halved and gpu.architecture != "Volta" else 1024


# published peaks that stand at another clock than the boost clock of the table, as each row's `checks` says
AT_ANOTHER_CLOCK = (
    "TITAN-V",
    "Quadro-GV100",
    "A100X",
    "H100-PCIe",
    "H100-NVL",
    "H200-NVL",
    "H800",
    "B200",
    "B300",
    "GB10",
    "RTX-PRO-5000",
)


def test_tensor_rates_are_sm_count_times_clock_times_width() -> None:
    checked = 0
    for gpu in gpus.all_gpus():
        if gpu.vendor != "NVIDIA" or gpu.architecture == "Pascal" or not gpu.sm_count or not gpu.boost_mhz:
            continue
        if gpu.id.startswith(AT_ANOTHER_CLOCK):
            continue
        assert gpu.fp16_dense_tflops is not None
        expected = gpu.sm_count * gpu.boost_mhz * _flop_per_sm_and_clock(gpu) / 1e6
        assert gpu.fp16_dense_tflops == pytest.approx(expected, rel=0.015), gpu.id
        checked += 1
    assert checked > 80


def test_bf16_needs_compute_capability_8() -> None:
    for gpu in gpus.all_gpus():
        if gpu.compute_capability is not None:
            assert gpu.supports_bf16 == (gpu.compute_capability >= 8.0), gpu.id


def test_usable_memory_is_below_nominal_and_what_cuda_sees_below_that() -> None:
    for gpu in gpus.all_gpus():
        if gpu.memory_gib_usable is not None:
            assert 0.85 * gpu.memory_gb < gpu.memory_gib_usable < 1.02 * gpu.memory_gb, gpu.id
        if gpu.memory_gib_usable is not None and gpu.cuda_visible_gib is not None:
            assert gpu.cuda_visible_gib <= gpu.memory_gib_usable, gpu.id
