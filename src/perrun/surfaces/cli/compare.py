"""perrun compare A B MODEL: the break-even between two cards on one job."""

from typing import Annotated, Any

import typer

from perrun.surfaces.cli.options import application, takes

app = application()


@app.command(help=__doc__)
@takes("job", "strategy", "output")
def compare(
    a: Annotated[str, typer.Argument(help="card A")],
    b: Annotated[str, typer.Argument(help="card B")],
    model: Annotated[str, typer.Argument(help="Hugging Face id, or a config.json or its folder")],
    job: dict[str, Any],
    strategy: dict[str, Any],
    output: dict[str, Any],
    n_gpus: Annotated[int, typer.Option("--n-gpus", help="GPUs on each side")] = 1,
    n_nodes: Annotated[int, typer.Option("--n-nodes")] = 1,
    price_a: Annotated[float | None, typer.Option("--price-a", help="dollars per GPU-hour of A")] = None,
    price_b: Annotated[float | None, typer.Option("--price-b", help="dollars per GPU-hour of B")] = None,
    provider: Annotated[str | None, typer.Option("--provider", help="prices of one provider")] = None,
    term: Annotated[str, typer.Option("--term", help="on-demand, interruptible, ...")] = "on-demand",
    prices: Annotated[str | None, typer.Option("--prices", help="your own price file (CSV)")] = None,
) -> None:
    from perrun import verbs
    from perrun.surfaces.cli import show

    found = verbs.compare(
        model,
        a,
        b,
        job,
        strategy,
        n_gpus=n_gpus,
        n_nodes=n_nodes,
        price_a=price_a,
        price_b=price_b,
        provider=provider,
        term=term,
        prices=prices,
    )
    if output["json"]:
        show.as_json(found)
        return
    columns = ("", "A", "B", "B with FP8")
    if not show.rows(columns, _table(found), output):
        return
    print(found.verdict + ".")
    print(
        f"Rent {found.b.rig.gpu} only if it is {found.price_ratio:.2f}x as fast or more; the verdict flips at "
        f"${found.flip_price_b:.2f} per GPU-hour ({found.flip_price_b_low:.2f}-{found.flip_price_b_high:.2f})."
    )
    if found.fp8 is not None:
        print(f"With FP8: {found.fp8.verdict}.")
    elif found.fp8_note:
        print(f"FP8: {found.fp8_note}.")
    if found.prices_age:
        print(found.prices_age)


def _table(found: Any) -> list[list[str]]:
    sides = [found.a, found.b, *([found.fp8.b] if found.fp8 else [])]
    blank = [""] * (3 - len(sides))

    def line(name: str, cells: list[str]) -> list[str]:
        return [name, *cells, *blank]

    ups = ["1.00", _ratio(found), *([_ratio(found.fp8)] if found.fp8 else [])]
    sure = [
        "",
        f"{found.probability_b_cheaper:.0%}",
        *([f"{found.fp8.probability_b_cheaper:.0%}"] if found.fp8 else []),
    ]
    return [
        line("rig", [str(s.rig) for s in sides]),
        line("precision", [s.precision for s in sides]),
        line("$ per GPU-hour", [f"{s.usd_per_gpu_hour:.3f} ({s.price_of})" for s in sides]),
        line("tokens/s", [f"{s.tokens_per_s:,.0f}" for s in sides]),
        line("speed-up (80 % range)", ups),
        line("hours", [f"{s.hours:.2f}" for s in sides]),
        line("$ per run", [f"{s.usd:.2f}" for s in sides]),
        line("cheaper than A", sure),
        line("bound by", [s.bound_by for s in sides]),
        line(
            "laid out as",
            [
                f"{s.strategy.micro_batch}x{s.strategy.grad_accum}, checkpointing {s.strategy.checkpointing}, "
                f"{'fused' if s.strategy.fused_ce else 'plain'} loss, {s.strategy.sharding}"
                for s in sides
            ],
        ),
    ]


def _ratio(found: Any) -> str:
    return f"{found.speedup:.2f} ({found.speedup_low:.2f}-{found.speedup_high:.2f})"
