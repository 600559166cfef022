"""Links by what collectives achieve; matmul rates; the publications that tables refer to."""

import pytest

from perrun.errors import InvalidInput, MissingFact, UnknownName
from perrun.facts import gpus, links, sources, tables


@pytest.mark.parametrize(
    ("gpu", "interconnect", "name", "gb_s"),
    [
        ("A100-SXM4-80GB", None, "nvlink-3", 234.89),  # nccl-tests on an A100 node, 16 GiB
        ("H200-SXM-141GB", None, "nvlink-4", 362.0),  # (361.4 + 362.9) / 2 of all-gather and reduce-scatter
        ("B200-180GB", None, "nvlink-5", 682.0),
        ("MI300X-192GB", None, "xgmi-3", 312.912),
        ("RTX-5090-32GB", None, "pcie-5-x16", 28.0),  # NVIDIA/nccl issue 1639, 8 cards
        ("RTX-3090-24GB", "nvlink", "nvlink-bridge-3", 44.0),
    ],
)
def test_a_link_is_the_measured_rate(gpu: str, interconnect: str | None, name: str, gb_s: float) -> None:
    link = links.link(gpus.get(gpu), interconnect)
    assert (link.name, link.gb_s) == (name, gb_s)
    assert link.source


def test_a_bridge_is_not_assumed() -> None:
    assert links.link(gpus.get("A100-PCIe-80GB"), None).name == "pcie-4-x16"
    assert links.link(gpus.get("A100-PCIe-80GB"), "nvlink").name == "nvlink-3"
    assert not links.has_fabric(gpus.get("H100-NVL-94GB"))


def test_a_card_without_nvlink_says_so() -> None:
    with pytest.raises(InvalidInput, match="RTX-4090-24GB has no NVLink"):
        links.link(gpus.get("4090"), "nvlink")


def test_an_unknown_slot_stays_unknown() -> None:
    with pytest.raises(MissingFact):
        links.link(gpus.get("GB10-128GB"), None)


@pytest.mark.parametrize("interconnect", ["ib", "none", "carrier pigeon"])
def test_what_links_no_gpus_of_a_node_is_refused(interconnect: str) -> None:
    with pytest.raises(InvalidInput):
        links.link(gpus.get("4090"), interconnect)


def test_nodes_have_the_ports_of_their_generation() -> None:
    hopper, ampere = gpus.get("H100-SXM-80GB"), gpus.get("A100-SXM4-80GB")
    assert links.node_link("ib", hopper).gb_s * 8 == pytest.approx(364.87, rel=0.001)  # 4 H200 nodes, measured
    assert links.node_link(None, ampere).name == "ib-200"
    assert links.node_link("nvlink", gpus.get("GB200-186GB")).name == "nvlink-5"
    assert links.node_link("ethernet", hopper).gb_s < links.node_link("ib", hopper).gb_s
    with pytest.raises(InvalidInput):
        links.node_link("pcie", hopper)


def test_no_link_is_faster_than_its_own_wire_and_every_card_with_a_slot_has_one() -> None:
    for row in tables.read("links"):
        assert 0 < float(row["achieved_gb_s"]) < float(row["spec_gb_s"]), row["name"]
        if row["two_way_gb_s"]:
            assert float(row["spec_gb_s"]) == float(row["two_way_gb_s"]) / 2, row["name"]
    for gpu in gpus.all_gpus():
        if gpu.pcie and "x" in gpu.pcie:
            assert links.link(gpu, "pcie").gb_s > 0
        if gpu.nvlink_gb_s:
            assert links.link(gpu, "nvlink").gb_s > 0


def test_matmul_rates_belong_to_known_cards_and_stay_below_the_peak() -> None:
    for row in tables.read("matmul_rates"):
        gpu = gpus.get(row["gpu"])
        peak = gpu.bf16_dense_tflops if row["precision"] == "bf16" else gpu.fp8_dense_tflops
        assert peak is not None
        above = "above the rated peak" in row["source"]  # boards that clock above their rated boost
        assert float(row["tflops_measured"]) < peak * (1.1 if above else 1.0), row["gpu"]


@pytest.mark.parametrize("table", ["gpus", "models", "links", "matmul_rates", "stacks"])
def test_every_row_cites_a_publication_or_says_that_it_does_not(table: str) -> None:
    for row in tables.read(table):
        cell = row["source"]
        assert sources.cited(cell) or "public" in cell or "recalled" in cell, cell


def test_sources_are_found_by_id_and_have_an_address() -> None:
    ids = [source.id for source in sources.all_sources()]
    assert len(ids) == len(set(ids))
    for source in sources.all_sources():
        assert source.url.startswith("https://"), source.id
        assert sources.get(source.id) is source
    with pytest.raises(UnknownName):
        sources.get("somebody's blog")
