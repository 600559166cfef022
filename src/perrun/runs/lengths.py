"""How long the sequences of a measured run were: the longest sets its memory, the mean its speed."""

from dataclasses import dataclass

from perrun.errors import InvalidInput
from perrun.runs import notes as say
from perrun.runs.cells import Row


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of a sequence. longest_known: the longest sample had `longest` tokens; mean_known: likewise."""

    longest: float
    mean: float
    longest_known: bool
    mean_known: bool
    why_mean: str = ""
    varying: bool = True


def lengths(row: Row) -> Lengths:
    """What the row and its notes say. Raises InvalidInput when they state no length at all."""
    tagged = say.tags(row.notes)
    seq_len = row.number("seq_len")
    mean = say.mean_length(row.notes)
    packed = row.flag("packing", False)
    if seq_len is None:
        if mean is None:
            raise InvalidInput("seq_len is not stated")
        return Lengths(mean, mean, longest_known=False, mean_known=True)
    exact = packed or "exact-seq" in tagged
    if exact:
        return Lengths(seq_len, seq_len, longest_known=True, mean_known=True, varying=False)
    reached = say.reaches_cap(row.notes)
    if mean is not None:
        padded = "padded to the longest" in row.notes
        why = "padded to the longest of each batch, whose length is not stated" if padded else ""
        return Lengths(seq_len, min(mean, seq_len), longest_known=reached, mean_known=not padded, why_mean=why)
    capped = "cap-seq" in tagged
    why = "seq_len is only a cap and the mean length is not stated"
    return Lengths(seq_len, seq_len, longest_known=reached or not capped, mean_known=False, why_mean=why)
