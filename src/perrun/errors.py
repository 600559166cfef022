"""What can go wrong, said in one line: what was wrong, what was expected, and a hint."""


class PerrunError(Exception):
    """A mistake that a user can mend. Surfaces print it as one line and exit with `exit_code`.

    `code` is the stable machine-readable name of the kind of error in every answer (CLI --json, REST, MCP).
    """

    code = "error"
    exit_code = 2

    def __init__(self, what: str, *, expected: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.expected = expected
        self.hint = hint

    def __str__(self) -> str:
        parts = [self.what.rstrip(".")]
        if self.expected:
            parts.append(f"expected {self.expected.rstrip('.')}")
        line = "; ".join(parts)
        return f"{line}. Hint: {self.hint}" if self.hint else line

    def to_dict(self) -> dict[str, str]:
        return {"error": self.code, "what": self.what, "expected": self.expected, "hint": self.hint}


class InvalidInput(PerrunError):
    """A number, name or combination of settings that is not allowed."""

    code = "invalid_input"


class UnknownName(PerrunError):
    """A GPU, model, provider, framework or rule set that the facts do not hold."""

    code = "unknown_name"


class AmbiguousName(PerrunError):
    """A name that fits several rows; `candidates` lists them with what tells them apart."""

    code = "ambiguous_name"

    def __init__(self, what: str, *, candidates: list[str], expected: str = "", hint: str = "") -> None:
        super().__init__(what, expected=expected, hint=hint)
        self.candidates = candidates


class MissingFact(PerrunError):
    """The row is known but the figure that the question needs is not: unknown stays unknown."""

    code = "missing_fact"


class UnsupportedModel(PerrunError):
    """A model that is no causal language model, or whose architecture is not known."""

    code = "unsupported_model"


class UnsupportedByGpu(PerrunError):
    """A precision or method that the card cannot run."""

    code = "unsupported_by_gpu"


class Unavailable(PerrunError):
    """Something outside (the hub, a price source, an optional package) could not be reached."""

    code = "unavailable"


class NothingFits(PerrunError):
    """No plan satisfies the constraints; the nearest misses are in the answer."""

    code = "nothing_fits"
    exit_code = 1
