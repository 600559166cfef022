"""perrun estimate MODEL --gpu G: memory, speed and fit of a job on one rig."""

from typing import Annotated, Any

import typer

from perrun.surfaces.cli.options import Explain, application, takes

app = application()


@app.command(help=__doc__)
@takes("job", "strategy", "output", "config")
def estimate(
    model: Annotated[str, typer.Argument(metavar="[MODEL]", help="Hugging Face id, or a config.json or its folder")],
    job: dict[str, Any],
    strategy: dict[str, Any],
    output: dict[str, Any],
    gpu: Annotated[str, typer.Option("--gpu", metavar="CARD", help="the card")],
    n_gpus: Annotated[int | None, typer.Option("--n-gpus", metavar="N", help="GPUs over all nodes")] = None,
    n_nodes: Annotated[int | None, typer.Option("--n-nodes", metavar="N", help="machines")] = None,
    interconnect: Annotated[
        str | None, typer.Option("--interconnect", metavar="WORD", help="nvlink, pcie, ib, ethernet")
    ] = None,
    usable_gib: Annotated[
        float | None, typer.Option("--usable-gib", metavar="GIB", help="memory that is free on the card")
    ] = None,
    power_limit: Annotated[
        float | None, typer.Option("--power-limit", metavar="W", help="watts, if below the card's")
    ] = None,
    largest: Annotated[
        str | None, typer.Option("--max", metavar="WHAT", help="find the largest seq_len, micro_batch or rank")
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="step the real model without a GPU (extra trace)")] = False,
    explained: Explain = False,
) -> None:
    from perrun import verbs
    from perrun.facts import gpus
    from perrun.surfaces.cli import explain, show
    from perrun.terms import Rig

    rig = Rig(
        gpu=gpus.get(gpu).id,
        n_gpus=1 if n_gpus is None else n_gpus,
        n_nodes=1 if n_nodes is None else n_nodes,
        interconnect=interconnect,  # type: ignore[arg-type]
        usable_gib=usable_gib,
        power_limit_w=power_limit,
    )
    if largest is not None:
        found = verbs.largest(largest, model, rig, job, strategy)
        show.as_json({largest: found}) if output["json"] else print(f"largest {largest}: {found}")
        return
    if trace:
        from perrun.surfaces.cli.traced import show_traced

        show_traced(model, rig, job, strategy, output)
        return
    answer = verbs.estimate(model, rig, job, strategy)
    if output["json"]:
        show.as_json(answer)
        return
    if show.rows(("what", "value"), _lines(answer), output, title=f"{model} on {rig}"):
        _remedies(answer)
        if explained:
            explain.estimate(answer)


def _lines(answer: Any) -> list[tuple[str, str]]:
    memory = answer.memory
    return [
        ("allocated", f"{memory.allocated_gib:.2f} GiB (widest: {memory.phase})"),
        ("reserved", f"{memory.reserved_gib:.2f} GiB"),
        ("device", f"{memory.device_gib:.2f} GiB ({memory.low_gib:.2f}-{memory.high_gib:.2f})"),
        ("fits", f"{answer.fits_probability:.0%}" + (f": {answer.why_not}" if answer.why_not else "")),
        ("host RAM", f"{answer.host_ram_gib:.0f} GiB a node"),
        (
            "tokens/s",
            f"{answer.tokens_per_s:,.0f} ({answer.tokens_per_s_low:,.0f}-{answer.tokens_per_s_high:,.0f}), all GPUs",
        ),
        ("with padding", f"{answer.processed_tokens_per_s:,.0f} tokens/s"),
        ("optimizer step", f"{answer.step_s:.3f} s"),
        ("stack", f"{answer.assumed.get('framework')}, {answer.assumed.get('loss')} loss"),
    ]


def _remedies(answer: Any) -> None:
    if answer.remedies:
        print("It fits with:")
    for remedy in answer.remedies:
        change = ", ".join(f"{name} {value}" for name, value in remedy.change.items())
        print(f"  {change}: {remedy.device_gib:.1f} GiB, {remedy.slower:.2f}x the time of a step")
    if answer.why_not and not answer.remedies:
        print("No change of strategy makes it fit on this rig; another method or more GPUs would.")
