"""The same model with fewer layers: what a grid traces, and what a deep model is extrapolated from.

Live bytes at a given place of the step are linear in the number of equal layers below and above it, so the highest
of a phase lies in its first or last layers, and two depths give each of these places at any depth.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from perrun.errors import UnsupportedModel
from perrun.trace.net import Net, layers
from perrun.trace.recipe import Recipe

if TYPE_CHECKING:
    from perrun.trace.step import MicroStep, OptimizerSteps, Request

_COUNT_NAMES = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")


@dataclass(frozen=True, slots=True)
class Run:
    """What was traced at one depth. later: a micro step on gradients that are there already (accumulation)."""

    micro: "MicroStep"
    later: "MicroStep"
    optimizer: "OptimizerSteps"
    layers: int


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a config.json (itself, or its text_config)."""
    inner: Mapping[str, Any] | None = config.get("text_config")
    return config if inner is None else inner


def layers_of(config: Mapping[str, Any]) -> int:
    """Number of decoder layers."""
    text = text_part(config)
    return int(next(text[name] for name in _COUNT_NAMES if name in text))


def truncated(config: Mapping[str, Any], n_layers: int) -> dict[str, Any]:
    """A copy of the config with the first n_layers layers; per-layer lists and patterns are cut with it."""
    whole = layers_of(config)
    cut: dict[str, Any] = copy.deepcopy(dict(config))
    if n_layers == whole:
        return cut
    text = cut["text_config"] if isinstance(cut.get("text_config"), dict) else cut
    for name in _COUNT_NAMES:
        if name in text:
            text[name] = n_layers
    for name, value in text.items():
        if isinstance(value, list) and len(cast(list[Any], value)) == whole:
            text[name] = value[:n_layers]
    pattern = text.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        text["hybrid_override_pattern"] = pattern[:n_layers]
    return cut


def _signature(layer: Net) -> tuple[Any, ...]:
    """What tells one layer from another: its parameters, and the attributes by which a mixer sees less or more."""
    attributes = ("layer_type", "attention_type", "sliding_window", "is_sliding", "use_rope", "block_type")
    seen = [str(getattr(m, name)) for m in layer.modules() for name in attributes if hasattr(m, name)]
    return (*((name, tuple(p.shape)) for name, p in layer.named_parameters()), *seen)


def _signatures(request: "Request", recipe: Recipe, n_layers: int) -> list[tuple[Any, ...]]:
    from perrun.trace import base

    model = base.skeleton(truncated(request.config, n_layers), recipe, request.attention)
    return [_signature(layer) for layer in layers(model)]


def _period(signatures: list[tuple[Any, ...]]) -> tuple[int, int] | None:
    """Lead and period: after `lead` layers, every `period` layers repeat to the end. None when not four times."""
    n = len(signatures)
    for size in range(1, n // 4 + 1):
        for lead in range(n - 4 * size + 1):
            if (n - lead) % size == 0 and all(signatures[i] == signatures[i + size] for i in range(lead, n - size)):
                return lead, size
    return None


def to_trace(request: "Request", recipe: Recipe) -> tuple[int, ...]:
    """The depths from which the whole is extrapolated exactly, or the whole depth alone."""
    whole = layers_of(request.config)
    found = _period(signatures := _signatures(request, recipe, whole))
    if found is None:
        return (whole,)
    lead, size = found
    few, more = lead + 2 * size, lead + 3 * size
    try:
        same = all(_signatures(request, recipe, count) == signatures[:count] for count in (few, more))
    except UnsupportedModel:  # a family whose first layers cannot stand alone
        same = False
    return (few, more) if same else (whole,)


def _linear(few: int, more: int, steps: int) -> int:
    return few + (more - few) * steps


def _places(micro: "MicroStep", period: int, layers: int) -> dict[str, str]:
    """Names of a trace's segments by place: the last period's layers counted from the end, earlier ones from 0."""
    found = {"loss": "loss", "backward": "backward", "forward end": f"forward {layers}"}
    for phase in ("forward", "backward"):
        for i in range(layers):
            found[f"{phase} {i if i < layers - period else i - layers}"] = f"{phase} {i}"
    return {place: name for place, name in found.items() if name in micro.segments}


def extrapolate(few: Run, more: Run, whole: int) -> Run:
    """The run of `whole` layers from two shallower ones that differ by one period."""
    period = more.layers - few.layers
    steps = (whole - few.layers) // period
    numbers = {
        name: _linear(getattr(few.optimizer, name), getattr(more.optimizer, name), steps)
        for name in ("first", "later", "states")
    }
    optimizer = replace(few.optimizer, **numbers)
    micro = _extend(few.micro, more.micro, few.layers, period, steps)
    return Run(micro, _extend(few.later, more.later, few.layers, period, steps), optimizer, whole)


def _extend(few: "MicroStep", more: "MicroStep", layers: int, period: int, steps: int) -> "MicroStep":
    names_few, names_more = _places(few, period, layers), _places(more, period, layers + period)
    segments: dict[str, int] = {}
    lines: dict[str, dict[str, int]] = {}
    for place in names_few.keys() & names_more.keys():
        a, b = names_few[place], names_more[place]
        segments[place] = _linear(few.segments[a], more.segments[b], steps)
        lines[place] = {k: _linear(few.lines[a][k], more.lines[b][k], steps) for k in few.lines[a]}
    plain = {
        name: _linear(getattr(few, name), getattr(more, name), steps)
        for name in ("load", "forward_end", "saved", "after_backward")
    }
    return replace(few, segments=segments, lines=lines, **plain)
