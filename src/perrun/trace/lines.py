"""What a peak is made of: each live storage on one named line."""

from collections.abc import Mapping

from perrun.trace.live import Born, LiveStorages

LINES = (
    "weights", "adapters", "gradients", "optimizer_states", "saved_activations", "logits_and_loss", "dequantised",
    "temporaries",
)  # fmt: skip
_DEQUANTISE = ("dequantize_4bit", "dequantize_blockwise", "int8_vectorwise_dequant")


def by_line(
    live: LiveStorages, parameters: Mapping[int, str], gradients: set[int], kept: set[int], vocabulary: int
) -> dict[str, dict[str, int]]:
    """Bytes per line of every segment's peak.

    parameters: serial number -> weights or adapters. kept: serial numbers live when the backward starts.
    Whatever spans the vocabulary and is no weight or gradient counts as logits and loss.
    """
    return {
        segment: _sum(live.living_at_peak(segment), parameters, gradients, kept, vocabulary) for segment in live.peaks
    }


def _sum(
    storages: list[Born], parameters: Mapping[int, str], gradients: set[int], kept: set[int], vocabulary: int
) -> dict[str, int]:
    found: dict[str, int] = dict.fromkeys(LINES, 0)
    for born in storages:
        found[_line(born, parameters, gradients, kept, vocabulary)] += born.size
    return found


def _line(born: Born, parameters: Mapping[int, str], gradients: set[int], kept: set[int], vocabulary: int) -> str:
    if born.key in parameters:
        return parameters[born.key]
    if born.op == "weights":
        return "weights"
    if born.key in gradients:
        return "gradients"
    if born.op.startswith(_DEQUANTISE):
        return "dequantised"
    if vocabulary in born.shape[-1:]:
        return "logits_and_loss"
    return "saved_activations" if born.key in kept else "temporaries"
