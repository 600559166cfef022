"""Plans in words: their names, the verdict in one line, what an answer rests on."""

from perrun.terms import Job, Plan

LEAST_SAID = 0.01  # what two decimals can say, of probabilities and of hours


def short(number: float) -> str:
    """Hours or dollars with two decimals, or with two digits where those would say 0.00."""
    return f"{number:,.2f}" if number >= LEAST_SAID or not number else f"{number:.2g}"


def rig_said(plan_: Plan) -> str:
    """The machine that is bought, how much of it is used, and whether host memory is: '2 of 8x H100-SXM-80GB'."""
    said = f"{plan_.used_gpus} of {plan_.offer.rig}" if plan_.used_gpus else str(plan_.offer.rig)
    return said if plan_.strategy.offload == "none" else f"{said}, offloaded"


def _name(plan_: Plan) -> str:
    return f"{rig_said(plan_)} at {plan_.offer.provider} ({plan_.offer.term})"


def verdict(cheapest: Plan, fastest: Plan, hour_usd: float = 0.0) -> str:
    """One line: the cheapest, and the fastest if it is another one, with what it costs to wait less.

    hour_usd: what an hour of waiting is worth, when the first is the best and not the cheapest alone.
    """
    first = f"Best with an hour of waiting at ${short(hour_usd)}" if hour_usd else "Cheapest"
    line = f"{first}: {_name(cheapest)}, ${cheapest.usd:,.2f} in {short(cheapest.hours)} h"
    if fastest is cheapest:
        return f"{line}; it is also the fastest."
    more, saved = fastest.usd - cheapest.usd, cheapest.hours - fastest.hours
    dearer = f"${abs(more):,.2f} {'more' if more >= 0 else 'less'}"
    return (
        f"{line}. Fastest: {_name(fastest)}, {short(fastest.hours)} h for ${fastest.usd:,.2f}: "
        f"{short(saved)} h less for {dearer}."
    )


def assumptions(job: Job, best: Plan) -> list[str]:
    """What the answer rests on and the user did not say."""
    found = best.estimate.assumed
    strategy = best.strategy
    lines = [
        f"stack: {found.get('framework')}, {strategy.attention} attention, "
        f"{'fused' if strategy.fused_ce else found.get('loss')} loss, checkpointing {strategy.checkpointing}",
        f"{job.examples:,} examples x {job.tokens_per_example:,} tokens x {job.epochs:g} epochs = "
        f"{job.tokens / 1e6:,.1f}M tokens, {'packed to' if job.packing else 'padded up to'} {job.seq_len}",
        f"global batch {job.global_batch}, {job.precision}, {job.optimizer}",
    ]
    if strategy.offload != "none":
        what = {"params": "weights", "optimizer": "optimizer states"}.get(strategy.offload, "weights and states")
        lines.append(f"{what} in host memory: {best.estimate.host_ram_gib:,.0f} GiB of a node's RAM")
    if job.adapters:
        lines.append(f"LoRA rank {job.lora_rank} on {job.lora_targets}")
    return lines
