"""A card as the rates that the law of speed reads."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from perrun.errors import InvalidInput, MissingFact, UnsupportedByGpu
from perrun.facts import gpus, links, tables
from perrun.physics import roofline
from perrun.terms import GPU, Rig
from perrun.units import GB, TERA

# Share of the rated rate that the best matrix product reaches where nobody measured the card or one of its chip:
# the middle of matmul_rates.csv. GeForce boards hold clocks above their rated boost (RTX 4090: 178.5 of 165.2).
SHARE = {"bf16": 0.80, "fp8": 0.73, "fp4": 0.73}
GEFORCE_SHARE = 1.08
AMD_SHARE = 0.60
MOST = 0.87  # the best measured share of a data-centre card
RACK = 72  # GPUs in one NVLink domain of an NVL72 rack


@dataclass(frozen=True, slots=True)
class Card:
    """Numbers, or arrays over candidates. Rates that matrix products reach [FLOP/s]; NaN: the card lacks it.

    bandwidth: rated memory bandwidth [B/s]. half: 16-bit rate that the head and adapters run at. link: one GPU's rate
    inside its island [B/s], node_link: one GPU's port of the network, host_link: to host memory. domain: GPUs of an
    island beyond a node (NVL72), else 0. power: board power over that at which the rates were measured.
    """

    bf16: Any
    fp16: Any
    fp32: Any
    fp8: Any
    mxfp8: Any
    nvfp4: Any
    attention_peak: Any
    compute_capability: Any
    bandwidth: Any
    link: Any
    node_link: Any
    latency: Any
    host_link: Any
    domain: Any
    power: Any


def _measured(gpu: GPU, precision: str) -> tuple[float, float] | None:
    """(share of the rated rate, board power behind it [W]) measured on this card, or on one of the same chip and
    build, whose power is scaled by the rated rates."""
    rated = {"bf16": gpu.bf16_dense_tflops, "fp8": gpu.fp8_dense_tflops}
    found: tuple[float, float] | None = None
    for row in tables.read("matmul_rates"):
        if row["precision"] != precision:
            continue
        other = gpus.get(row["gpu"])
        share = float(row["tflops_measured"]) / float(row["tflops_spec"])
        if other.id == gpu.id:
            return share, gpu.tdp_w or 0.0
        if (other.architecture, other.form_factor[:3]) == (gpu.architecture, gpu.form_factor[:3]) and found is None:
            scale = (rated.get(precision) or 0.0) / float(row["tflops_spec"])
            found = share, (other.tdp_w or 0.0) * scale
    return found if gpu.form_factor[:3] in ("SXM", "Sup", "OAM") else None


def _share(gpu: GPU, precision: str) -> tuple[float, float]:
    """(share of the rated rate, board power behind it [W])."""
    found = _measured(gpu, precision)
    if found is not None:
        return found
    if gpu.vendor != "NVIDIA":
        other = _measured(gpu, "bf16")
        return other if other is not None else (AMD_SHARE, gpu.tdp_w or 0.0)
    if "GeForce" in gpu.marketing_name:
        return GEFORCE_SHARE, gpu.tdp_w or 0.0
    return SHARE[precision], gpu.tdp_w or 0.0


def _rates(gpu: GPU) -> dict[str, float]:
    """Rates that products reach by precision [FLOP/s]; NaN where the card has none."""
    nan = float("nan")
    half, eight = _share(gpu, "bf16")[0], _share(gpu, "fp8")[0]
    blackwell = (gpu.compute_capability or 0.0) >= 10.0 or gpu.architecture.startswith("CDNA4")
    bf16 = gpu.bf16_dense_tflops if gpu.supports_bf16 else None
    rated = {
        "bf16": (bf16, half),
        "fp16": (gpu.fp16_dense_tflops or gpu.bf16_dense_tflops, half),
        "fp32": (gpu.fp32_tflops, half),
        "fp8": (gpu.fp8_dense_tflops, eight),
        "mxfp8": (gpu.fp8_dense_tflops if blackwell else None, eight),
        "nvfp4": (gpu.fp4_dense_tflops if blackwell else None, eight),
    }
    return {name: (rate * share * TERA if rate else nan) for name, (rate, share) in rated.items()}


def _links(gpu: GPU, rig: Rig) -> dict[str, float]:
    """Rates between GPUs [B/s] and latency of one step of a ring [s]; NaN where the rig needs none."""
    nan = float("nan")
    inside = rig.interconnect if rig.interconnect in ("nvlink", "pcie") else None
    link, node, latency = nan, nan, 0.0
    if rig.n_gpus > 1:
        if inside is None and "NVL" in gpu.id and gpu.nvlink_gb_s:  # sold with their bridges
            inside = "nvlink"
        try:
            near = links.link(gpu, inside)
        except InvalidInput:  # a fact of the rig that its card contradicts: the card is right
            near = links.link(gpu, None)
        link, latency = near.gb_s * GB, near.latency_s
    if rig.n_nodes > 1:
        between = rig.interconnect if rig.interconnect in ("ib", "ethernet") else None
        node = links.node_link(between, gpu).gb_s * GB
    return {"link": link, "node_link": node, "latency": latency}


def _host_link(gpu: GPU) -> float:
    """Rate to pinned host memory [B/s]: one way of PCIe at 85 %; NaN when the slot is not known."""
    generation = gpu.pcie.split()[0] if gpu.pcie else ""
    for row in tables.read("links"):
        if row["name"] == f"pcie-{generation}-x16":
            return float(row["spec_gb_s"]) * roofline.BANDWIDTH * GB
    return float("nan")


def card(gpu: GPU, rig: Rig) -> Card:
    """The card of a rig. Raises MissingFact naming the figure without which nothing can be said of its speed."""
    if gpu.bandwidth_gb_s is None:
        raise MissingFact(f"the memory bandwidth of {gpu.id} is not known", hint="speed cannot be estimated without it")
    peak = gpu.bf16_dense_tflops if gpu.supports_bf16 else gpu.fp16_dense_tflops
    if peak is None:
        raise MissingFact(f"the 16-bit TFLOPS of {gpu.id} are not known", hint="speed cannot be estimated without them")
    share, watts = _share(gpu, "bf16")
    limit = rig.power_limit_w or gpu.tdp_w
    rack = "NVL72" in gpu.form_factor
    return Card(
        **_rates(gpu),
        **_links(gpu, rig),
        attention_peak=peak * share * TERA,
        compute_capability=gpu.compute_capability or 0.0,
        bandwidth=gpu.bandwidth_gb_s * GB,
        host_link=_host_link(gpu),
        domain=float(RACK) if rack else 0.0,
        power=limit / watts if limit and watts else 1.0,
    )


_FIELD = {"bf16-true": "bf16", "bf16-mixed": "bf16", "fp16-mixed": "fp16"}


def rate(found: Card, precision: str) -> Any:
    """Rate of products in a precision [FLOP/s]. Raises UnsupportedByGpu when the card (or one of several) lacks it."""
    value = getattr(found, _FIELD.get(precision, precision))
    if np.any(np.isnan(value)):
        raise UnsupportedByGpu(
            f"the card has no {precision} rate",
            expected="bf16 from Ampere on, fp8 from Ada on, mxfp8 and nvfp4 on Blackwell",
            hint="choose another precision or card",
        )
    return value


def half_rate(found: Card, precision: str) -> Any:
    """Rate of products that stay in 16 bit beside low-precision ones [FLOP/s]."""
    if precision == "fp16-mixed" or np.any(np.isnan(found.bf16)):
        return found.fp16
    return found.fp32 if precision == "fp32" else found.bf16


def stacked(cards: Sequence[Card]) -> Card:
    """Cards as one, whose numbers are arrays over them."""
    names = [field.name for field in fields(Card)]
    rows = np.array([[getattr(one, name) for name in names] for one in cards], dtype=float)
    return Card(*rows.reshape(-1, len(names)).T)


def taken(cards: Card, index: Any) -> Card:
    """Some of stacked cards, by index."""
    return Card(*(getattr(cards, field.name)[index] for field in fields(Card)))
