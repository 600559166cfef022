"""perrun estimate --trace: the real model stepped op by op without a GPU, beside the closed form."""

import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from perrun.terms import Rig


@contextmanager
def _progress() -> Generator[Callable[[str, float], None]]:
    """A bar on stderr while the trace runs; transformers' announcements of renamed functions are not for users."""
    from rich.console import Console
    from rich.progress import Progress

    with warnings.catch_warnings(), Progress(console=Console(stderr=True), transient=True) as bar:
        warnings.simplefilter("ignore", FutureWarning)
        task = bar.add_task("tracing", total=1.0)
        yield lambda word, share: bar.update(task, description=f"tracing {word}", completed=share)


def show_traced(model: str, rig: Rig, job: dict[str, Any], strategy: dict[str, Any], output: dict[str, Any]) -> None:
    """Prints the traced peak of a step, phase by phase. Raises Unavailable without the extra `trace`."""
    from perrun import trace, verbs
    from perrun.surfaces.cli import show
    from perrun.units import gib

    asked, found = verbs.job(model, job)
    laid_out = verbs.layout(asked, rig, strategy)
    with _progress() as report:
        traced = trace.trace(found, asked, laid_out, rig, progress=report)
    closed = verbs.estimate(model, rig, job, strategy).memory.allocated_gib
    answer = {
        "allocated_gib": gib(traced.peak),
        "phase": traced.phase,
        "phases_gib": {name: gib(size) for name, size in traced.phases.items()},
        "lines_gib": {name: gib(size) for name, size in traced.lines.items()},
        "closed_form_gib": closed,
        "versions": traced.versions,
    }
    if output["json"]:
        show.as_json(answer)
        return
    rows = [
        ("traced peak", f"{gib(traced.peak):.3f} GiB ({traced.phase})"),
        ("closed form", f"{closed:.3f} GiB"),
    ]
    rows += [(f"phase {name}", f"{gib(size):.3f} GiB") for name, size in traced.phases.items()]
    rows += [(name, f"{gib(size):.3f} GiB") for name, size in traced.lines.items()]
    rows += [("versions", ", ".join(f"{name} {version}" for name, version in traced.versions.items()))]
    show.rows(("what", "value"), rows, output)
