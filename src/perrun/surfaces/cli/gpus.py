"""perrun gpus [NAME]: known GPUs and their figures, dense rates."""

from typing import Annotated, Any

import typer

from perrun.surfaces.cli.options import application, takes

app = application()
COLUMNS = ("gpu", "architecture", "GB", "usable GiB", "GB/s", "bf16 TFLOPS", "fp8 TFLOPS", "NVLink GB/s", "W")


@app.command(help=__doc__)
@takes("output")
def gpus(
    output: dict[str, Any], name: Annotated[str | None, typer.Argument(help="a card, as people type it")] = None
) -> None:
    from perrun.facts import gpus as facts
    from perrun.surfaces.cli import show

    if name is not None:
        card = facts.get(name)
        if output["json"]:
            show.as_json(card)
            return
        filled = [(key, value) for key, value in card.model_dump().items() if value not in (None, "")]
        show.rows(("what", "value"), filled, output)
        return
    cards = facts.all_gpus()
    if output["json"]:
        show.as_json([card.model_dump() for card in cards])
        return
    show.rows(COLUMNS, [_row(card) for card in cards], output)


def _row(card: Any) -> list[str]:
    figures = (
        card.memory_gb,
        card.memory_gib_usable,
        card.bandwidth_gb_s,
        card.bf16_dense_tflops,
        card.fp8_dense_tflops,
        card.nvlink_gb_s,
        card.tdp_w,
    )
    return [card.id, card.architecture, *("" if figure is None else f"{figure:g}" for figure in figures)]
