"""Flags that several commands share, as tables; `takes` gives a command the groups that it names."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, cast

import typer


@dataclass(frozen=True, slots=True)
class Flag:
    """One option: the field it fills, its type, its spelling and its help, and the least and most that it takes."""

    field: str
    kind: Any
    spelling: tuple[str, ...]
    help: str
    default: Any = None
    least: float | None = None
    most: float | None = None


JOB = (
    Flag("method", str, ("--method", "-m"), "full, lora, qlora, lora-int8, dora, qdora"),
    Flag("objective", str, ("--objective",), "sft, pretrain, dpo, orpo, kto, rm, ppo, grpo"),
    Flag("precision", str, ("--precision",), "bf16-true, bf16-mixed, fp16-mixed, fp32, fp8, mxfp8, nvfp4"),
    Flag(
        "optimizer",
        str,
        ("--optimizer",),
        "adamw, adamw-8bit, adamw-4bit, paged-adamw-8bit, paged-adamw-32bit, adafactor, sgd, lion, lion-8bit",
    ),
    Flag("lora_rank", int, ("--rank",), "LoRA rank"),
    Flag("lora_targets", str, ("--targets",), "all-linear, attn, attn-qv, or module names joined by ','"),
    Flag("examples", int, ("--examples",), "rows of the data set"),
    Flag("tokens_per_example", int, ("--tokens",), "mean tokens of a row"),
    Flag("longest_example", int, ("--longest",), "tokens of the longest row"),
    Flag("epochs", float, ("--epochs",), "passes over the data"),
    Flag("seq_len", int, ("--seq-len",), "cap on the tokens of a sequence"),
    Flag("packing", bool, ("--packing/--no-packing",), "join rows to sequences of exactly seq-len"),
    Flag("global_batch", int, ("--global-batch",), "sequences per optimizer step over all GPUs"),
)
STRATEGY = (
    Flag("framework", str, ("--framework",), "training stack: trl, axolotl, unsloth, torchtune, nemo, ..."),
    Flag("micro_batch", int, ("--micro-batch",), "sequences per GPU per forward"),
    Flag("checkpointing", str, ("--checkpointing",), "none, selective, full, unsloth"),
    Flag("attention", str, ("--attention",), "eager, sdpa, flash2, flash3, te"),
    Flag("fused_ce", bool, ("--fused-ce/--no-fused-ce",), "loss without storing all logits"),
    Flag("compile", bool, ("--compile/--no-compile",), "torch.compile"),
    Flag("offload", str, ("--offload",), "none, params, optimizer, both"),
    Flag("sharding", str, ("--sharding",), "none, ddp, zero1, zero2, zero3, fsdp, fsdp2"),
    Flag("tp", int, ("--tp",), "tensor parallel degree"),
    Flag("pp", int, ("--pp",), "pipeline parallel degree"),
    Flag("cp", int, ("--cp",), "context parallel degree"),
    Flag("ep", int, ("--ep",), "expert parallel degree"),
)
OUTPUT = (
    Flag("json", bool, ("--json",), "the answer as JSON", False),
    Flag("csv", bool, ("--csv",), "the rows as CSV", False),
    Flag("markdown", bool, ("--markdown",), "the rows as a Markdown table", False),
    Flag("html", bool, ("--html",), "the rows as an HTML table", False),
)
OFFERS = (
    Flag("gpu", list[str], ("--gpu",), "only these cards; a name that fits several means all"),
    Flag("provider", list[str], ("--provider",), "only these providers"),
    Flag("term", list[str], ("--term",), "on-demand, interruptible, reserved, prepaid-block, ..."),
    Flag("region", list[str], ("--region",), "only these regions"),
    Flag("instance", list[str], ("--instance",), "only these machines"),
    Flag("n_gpus", int, ("--n-gpus",), "only machines with so many GPUs"),
)
WISH = (
    Flag("gpus", list[str], ("--gpu",), "only these cards; a name that fits several means all"),
    Flag("providers", list[str], ("--provider",), "only these providers"),
    Flag("regions", list[str], ("--region",), "only these regions"),
    Flag("terms", list[str], ("--term",), "on-demand, interruptible, prepaid-block, ..."),
    Flag("max_gpus", int, ("--max-gpus",), "largest rig; clusters of 8-GPU nodes are made up to it", least=1),
    Flag("n_gpus", int, ("--n-gpus",), "so many GPUs, in the smallest node sold that holds them", least=1),
    Flag("budget_usd", float, ("--budget",), "dollars at most, for all runs"),
    Flag("deadline_h", float, ("--deadline",), "hours of a run at most"),
    Flag("hour_usd", float, ("--hour-is-worth",), "dollars that an hour of waiting costs you", least=0),
    Flag("runs", int, ("--runs",), "experiments", least=1),
    Flag("per_day", float, ("--per-day",), "experiments started in a day"),
    Flag("front", bool, ("--pareto",), "only plans that no other beats in dollars, hours and risk", False),
    Flag("min_fit", float, ("--min-fit",), "least probability to fit (default 0.9)", least=0, most=1),
    Flag("keep_days", float, ("--keep-days",), "days that the disk is kept after the run", least=0),
    Flag("mtbi_hours", float, ("--mtbi",), "your own mean time between interruptions [h]"),
    Flag("sort", str, ("--sort",), "usd, hours, fit or risk"),
)
CONFIG = (
    Flag("config", list[str], ("--config",), "a configuration of trl, axolotl, llamafactory, ...: what it says stands"
         " unless a flag says otherwise"),
)  # fmt: skip
METAVARS: dict[Any, str] = {int: "N", float: "X", str: "WORD", list[str]: "NAME"}
GROUPS = {"job": JOB, "strategy": STRATEGY, "output": OUTPUT, "offers": OFFERS, "wish": WISH, "config": CONFIG}
Explain = Annotated[bool, typer.Option("--explain", help="every line with its law and its source")]


def takes(*groups: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds the flags of `groups` to a command, which gets each group as one dict of what the user gave."""

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in inspect.signature(command).parameters.values() if p.name not in groups]
        if "config" in groups:  # which may name the model
            own = [p.replace(default=None) if p.name == "model" else p for p in own]
            own.sort(key=lambda p: p.default is not inspect.Parameter.empty)

        @functools.wraps(command)
        def called(**given: Any) -> None:
            for name in groups:
                chosen = {flag.field: given.pop(flag.field) for flag in GROUPS[name]}
                given[name] = {key: value for key, value in chosen.items() if value is not None}
            _one_form(given.get("output", {}))
            if "config" in groups:
                from perrun.surfaces.cli import configured

                given = configured.filled(given, given.pop("config").get("config") or [])
            command(**given)

        added = [_parameter(flag) for name in groups for flag in GROUPS[name]]
        called.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
        called.__annotations__ = {p.name: p.annotation for p in (*own, *added)}
        return called

    return wrap


def _one_form(output: dict[str, Any]) -> None:
    """Raises InvalidInput when an answer is asked for in two forms."""
    forms = [f"--{name}" for name, chosen in output.items() if chosen]
    if len(forms) > 1:
        from perrun.errors import InvalidInput

        raise InvalidInput(f"{' and '.join(forms)} at once", expected="one form of output")


def by_flag(group: str, given: dict[str, Any]) -> dict[str, Any]:
    """What was given of a group, by the flags as people type them."""
    return {flag.spelling[0]: given[flag.field] for flag in GROUPS[group] if given.get(flag.field)}


def refuse(name: str, others: dict[str, Any], why: str) -> None:
    """Raises InvalidInput that names the flags given beside `name` that it would leave without effect."""
    idle = [flag for flag, value in others.items() if value not in (None, False, [], ())]
    if idle:
        from perrun.errors import InvalidInput

        raise InvalidInput(f"{name} and {', '.join(idle)} contradict each other", hint=f"{why}: leave one out")


def _parameter(flag: Flag) -> inspect.Parameter:
    kind = flag.kind if flag.default is not None else flag.kind | None
    word = None if flag.kind is bool else METAVARS[flag.kind]
    option = typer.Option(
        *flag.spelling, help=flag.help, metavar=word, show_default=False, min=flag.least, max=flag.most
    )
    annotation = Annotated[kind, option]
    return inspect.Parameter(flag.field, inspect.Parameter.KEYWORD_ONLY, default=flag.default, annotation=annotation)


def as_command(asked: Any) -> str:
    """The `perrun plan` that asks what a short question was read as (`grammar.Asked`)."""
    import shlex

    return shlex.join(["perrun", "plan", asked.model, *as_flags(asked.job | asked.strategy | asked.wish)])


def as_flags(values: dict[str, Any]) -> list[str]:
    """Fields of a job, a layout and a wish as the flags that say the same."""
    flags = {flag.field: flag for flag in (*JOB, *STRATEGY, *WISH)}
    words: list[str] = []
    for name, value in values.items():
        flag = flags[name]
        yes, _, no = flag.spelling[0].partition("/")
        if flag.kind is bool:
            words.append(yes if value else no)
            continue
        for one in cast(tuple[Any, ...], value) if isinstance(value, tuple) else (value,):
            words += [yes, f"{one:g}" if isinstance(one, float) else str(one)]
    return words


def application() -> typer.Typer:
    """A typer app whose mistakes we print ourselves."""
    return typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
