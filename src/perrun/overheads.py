"""What a run needs beside its training: gigabytes that move, the wait before the first step, interruptions.

One value per offer, in three cases: as expected, at the cheap end and at the dear end of what is not known.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from perrun.physics import params, spot
from perrun.prices import tables
from perrun.shapes import Shape
from perrun.terms import Job, Model, Offer
from perrun.units import GB, SECONDS_PER_HOUR

Case = Literal["low", "value", "high"]  # the cheap end, as expected, the dear end: fields of tables.Prior
Array = npt.NDArray[np.float64]
STOPS = ("interruptible",)
# Training in 16 bits under adapters keeps them in fp32 with two moments; full training saves 16-bit weights with
# two fp32 moments. Source: transformers Trainer, which saves model and optimizer state dicts.
BYTES_PER_ADAPTER = 12.0
BYTES_PER_PARAMETER = 10.0
STORED_BYTES = {"gptq": 0.56, "awq": 0.56, "mxfp4": 0.53, "nvfp4": 0.56, "fp8": 1.0}


@dataclass(frozen=True, slots=True)
class Moves:
    """GB that a run moves: weights in, one checkpoint, what is carried home at the end."""

    weights: float
    checkpoint: float
    result: float


@lru_cache(1024)  # a server is asked for any shape: it must not keep them all
def _adapter_params(shape: Shape, targets: str, rank: int) -> float:
    return params.adapters_total(shape, targets, rank)


def moves(job: Job, model: Model) -> Moves:
    """GB that the run downloads, saves at a checkpoint, and carries home (adapters, or the whole 16-bit model)."""
    weights = STORED_BYTES.get(model.stored_quantization or "", 2.0) * model.total_params / GB
    if job.adapters:
        count = _adapter_params(model.shape, job.lora_targets, job.lora_rank)
        return Moves(weights, BYTES_PER_ADAPTER * count / GB, 4.0 * count / GB)
    return Moves(weights, BYTES_PER_PARAMETER * model.total_params / GB, 2.0 * model.total_params / GB)


def prior(name: str, case: Case) -> float:
    """An assumed figure of priors.csv."""
    return float(getattr(tables.priors()[name], case))


def column(offers: list[Offer], field: str, unknown: float) -> Array:
    """A field of each offer; `unknown` where it is None."""
    return np.array([unknown if (value := getattr(offer, field)) is None else value for offer in offers], dtype=float)


def startup_parts(gb: Moves, offers: list[Offer], case: Case = "value") -> dict[str, Array]:
    """Seconds before the first step, part by part: weights are downloaded and then loaded at their stored size."""
    network = prior("network_gb_s", case)
    parts = {
        "queue": prior("queue_s", case),
        "boot": column(offers, "boot_s", prior("boot_s", case)),
        "image": prior("image_gb", case) / network,
        "installation": prior("install_s", case),
        "download of the weights": gb.weights / network,
        "load of the weights": gb.weights / prior("load_gb_s", case),
    }
    return {name: np.broadcast_to(np.asarray(seconds, dtype=float), len(offers)) for name, seconds in parts.items()}


def startup_hours(gb: Moves, offers: list[Offer], case: Case = "value") -> Array:
    """Hours of the start-up that are on the bill: no queue, and no boot where the meter starts behind it."""
    parts = startup_parts(gb, offers, case)
    boots = np.array([offer.boot_billed for offer in offers], dtype=float)
    billed = sum(seconds for name, seconds in parts.items() if name not in ("queue", "boot"))
    return (parts["boot"] * boots + billed) / SECONDS_PER_HOUR


def hazards(offers: list[Offer], case: Case = "value") -> Array:
    """Interruptions per hour of each offer; 0 where nobody interrupts. The user's own figure goes first.

    Any node of several stops the run, so the hazard grows with the nodes.
    """
    found = np.zeros(len(offers))
    for index, offer in enumerate(offers):
        if offer.term in STOPS:
            mean = offer.mtbi_hours or getattr(tables.mtbi_hours(offer.interruption_class), case)
            found[index] = offer.rig.n_nodes / mean
    return found


@dataclass(frozen=True, slots=True)
class Interruption:
    """What being interruptible adds to `work` hours, one value per offer."""

    hazard: Array
    interval_hours: Array
    saving_hours: Array
    lost_hours: Array
    expected: Array


def _pauses(gb: Moves, offers: list[Offer], case: Case) -> tuple[float, Array]:
    """Hours of writing one checkpoint, and of being back at work after an interruption.

    The prior holds provisioning, set-up and load of usual models; a start-up that takes longer counts as it is.
    """
    checkpoint = gb.checkpoint / prior("checkpoint_gb_s", case) / SECONDS_PER_HOUR
    return checkpoint, np.maximum(prior("restart_s", case) / SECONDS_PER_HOUR, startup_hours(gb, offers, case))


def interruption(work: Any, gb: Moves, offers: list[Offer], case: Case = "value") -> Interruption:
    """Expected hours of saving, and of lost work and restarts, saving at Daly's best interval."""
    hazard = hazards(offers, case)
    checkpoint, restart = _pauses(gb, offers, case)
    work = np.broadcast_to(np.asarray(work, dtype=float), hazard.shape)
    best: Array = spot.daly_interval(checkpoint, hazard)
    interval = np.where(hazard > 0, np.minimum(best, work), work)
    saving = np.where(hazard > 0, spot.segments(work, interval) * checkpoint, 0.0)
    total = spot.expected_hours(work, hazard, interval, np.where(hazard > 0, checkpoint, 0.0), restart)
    return Interruption(hazard, interval, saving, np.maximum(total - work - saving, 0.0), hazard * total)


def break_even_mtbi(work: Any, gb: Moves, offers: list[Offer], on_demand: dict[Any, float]) -> Array:
    """Hours between interruptions below which the same machine on demand is cheaper; inf: always, nan: not known.

    on_demand: dollars per hour by `machine`.
    """
    found = np.full(len(offers), np.nan)
    asked = [i for i, offer in enumerate(offers) if offer.term in STOPS and machine(offer) in on_demand]
    if asked:
        chosen = [offers[i] for i in asked]
        checkpoint, restart = _pauses(gb, chosen, "value")
        ratio = np.array([offer.usd_per_hour / on_demand[machine(offer)] for offer in chosen])
        hours = np.broadcast_to(np.asarray(work, dtype=float), len(offers))[asked]
        hazard: Array = spot.break_even_hazard(ratio, hours, checkpoint, restart)
        nodes = np.array([offer.rig.n_nodes for offer in chosen], dtype=float)
        with np.errstate(divide="ignore"):
            found[asked] = nodes / hazard
    return found


def machine(offer: Offer) -> tuple[Any, ...]:
    """What is the same machine under another term."""
    return (offer.provider, offer.instance, offer.region, offer.rig)
