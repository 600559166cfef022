"""What was read of a configuration."""

from typing import Any

from pydantic import Field

from perrun.terms import Noun


class Read(Noun):
    """A foreign configuration as fields of a Job and a Strategy; what it does not say is left out."""

    target: str = Field(description="which stack it is of")
    job: dict[str, Any] = Field(default_factory=dict[str, Any], description="fields of a Job")
    strategy: dict[str, Any] = Field(default_factory=dict[str, Any], description="fields of a Strategy")
    n_gpus: int | None = Field(default=None, description="GPUs over all nodes, where it says so")
    n_nodes: int | None = Field(default=None, description="machines, where it says so")
    unread: list[str] = Field(default_factory=list[str], description="keys that perrun has no use for")
    unknown: list[str] = Field(default_factory=list[str], description="keys that the stack itself does not know")
    notes: list[str] = Field(default_factory=list[str], description="what was understood otherwise than written")


def merged(first: Read, second: Read) -> Read:
    """Two files that belong together; what the first says stands."""
    return Read(
        target=first.target,
        job={**second.job, **first.job},
        strategy={**second.strategy, **first.strategy},
        n_gpus=first.n_gpus or second.n_gpus,
        n_nodes=first.n_nodes or second.n_nodes,
        unread=first.unread + second.unread,
        unknown=first.unknown + second.unknown,
        notes=first.notes + second.notes,
    )
