"""Files as people have them: which stack's they are, which others belong to them, and what they say together."""

from pathlib import Path
from typing import Any

from perrun.errors import InvalidInput, Unavailable
from perrun.recipes import accelerate, commands, deepspeed, module, tables, trl
from perrun.recipes.commands import SCRIPT, Call
from perrun.recipes.keys import parsed
from perrun.recipes.order import ZERO
from perrun.recipes.reading import Read, merged

BESIDE = (SCRIPT, accelerate.FILE, "accelerate_config.yaml", deepspeed.FILE, "ds_config.json")
ENDINGS = (".yaml", ".yml", ".json", ".py", ".sh", ".txt")
LARGEST = 1_000_000  # bytes; a configuration is never so long
# keys that only one stack has; the first row that a file has any key of says what it is
SIGNS: tuple[tuple[str, frozenset[str]], ...] = (
    ("axolotl", frozenset(("base_model",))),
    ("deepspeed", frozenset(("zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size"))),
    ("accelerate", frozenset(("distributed_type", "compute_environment"))),
    ("nemo-automodel", frozenset(("step_scheduler", "packed_sequence"))),
    ("llamafactory", frozenset(("finetuning_type", "stage", "cutoff_len", "template", "dataset_dir"))),
    ("trl", frozenset(("model_name_or_path", "use_peft", "packing", "lora_r", "max_length"))),
    ("trainer", frozenset(("per_device_train_batch_size", "num_train_epochs", "gradient_accumulation_steps", "optim"))),
)  # fmt: skip
PROGRAMS = (
    "trl",
    "axolotl",
    "llamafactory-cli",
    "lmf",
    "automodel",
    "accelerate",
    "torchrun",
    "deepspeed",
    "python",
    "python3",
)
SCRIPTS = {f"{name}.py": name for name in ("sft", "dpo", "kto", "reward", "grpo")}


def read_file(path: str | Path) -> Read:
    """The configuration in a file, with those of its folder that belong to it.

    A file belongs to it that it names, that its run.sh names with it, or that bears a usual name (accelerate.yaml,
    deepspeed.json). Raises Unavailable for a file that cannot be read, InvalidInput that names the key or the line.
    """
    file = Path(path)
    try:
        if file.is_dir():
            file = file / SCRIPT
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as why:
        raise Unavailable(f"{file} cannot be read: {why}", expected="a configuration or a folder with run.sh") from None
    beside = _beside(file, text)
    script = beside.get(SCRIPT, "")
    if file.name != SCRIPT and file.name in script:
        beside[file.name] = text
        return read(script, beside, SCRIPT)
    return read(text, beside, file.name)


def _beside(file: Path, text: str) -> dict[str, str]:
    """Texts of the files of a folder that may belong to one of them."""
    found: dict[str, str] = {}
    for other in sorted(file.parent.iterdir()):
        named = other.name in text or other.name in BESIDE
        if other.name == file.name or not named or other.suffix not in ENDINGS or not other.is_file():
            continue
        if other.stat().st_size <= LARGEST:
            found[other.name] = other.read_text(encoding="utf-8", errors="replace")
    script = found.get(SCRIPT, "")
    for name in [word for word in script.split() if word.endswith(ENDINGS)]:
        other = file.parent / name
        if other.is_file() and other.name != file.name:
            found.setdefault(other.name, other.read_text(encoding="utf-8", errors="replace"))
    return found


def read(text: str, beside: dict[str, str], where: str) -> Read:
    """A configuration or a command line, of whatever stack it is. Raises InvalidInput that names the key."""
    if where.endswith((".sh", ".txt")) or text.lstrip().startswith(
        ("trl ", "accelerate ", "axolotl ", "llamafactory-cli ")
    ):
        return _finished(_script(text, beside, where))
    target = which(text, where)
    return _finished(_checked(module(target).read(text, beside, where), text))


def which(text: str, where: str) -> str:
    """The stack that a file is of. Raises InvalidInput for a file that no stack reads."""
    if where.endswith(".py"):
        return "unsloth"
    keys = set(parsed(text, where))
    for target, signs in SIGNS:
        if keys & signs:
            return target
    if any("torchtune" in str(value) for value in parsed(text, where).values()):
        raise InvalidInput(f"{where} is for torchtune, which is wound down", expected=", ".join(tables.targets()))
    raise InvalidInput(
        f"{where} is of no stack that perrun reads: its keys are {', '.join(sorted(keys)[:5])}",
        expected=f"a configuration of {', '.join(tables.targets())}",
    )


def _checked(found: Read, text: str) -> Read:
    """With the keys that the stack itself does not know."""
    from perrun.recipes import fields

    strange = fields.strange(found.target, found.job.get("objective"), text)
    return found.model_copy(
        update={"unknown": strange, "unread": [k for k in found.unread if k.split(" ")[0] not in strange]}
    )


def _finished(found: Read) -> Read:
    """How ranks share the work where only their number says it."""
    strategy = dict(found.strategy)
    sharding = strategy.get("sharding")
    if found.n_gpus == 1 and sharding not in ZERO:
        strategy["sharding"] = "none"
    elif found.n_gpus is not None and found.n_gpus > 1 and sharding in (None, "none"):
        strategy["sharding"] = "ddp"
    strategy.setdefault("offload", "none")
    job = dict(found.job)
    if strategy.get("sharding") in ZERO and job.get("precision") == "bf16-mixed":
        job["precision"] = "bf16-true"  # DeepSpeed stores the weights in bf16 and keeps the fp32 copy apart
    return found.model_copy(update={"strategy": strategy, "job": job})


# --------------------------------------------------------------------------------------- command lines


def _script(text: str, beside: dict[str, str], where: str) -> Read:
    for call in commands.calls(text):
        program = call.words[0].rpartition("/")[2] if call.words else ""
        if program in PROGRAMS:
            return _call(call, program, beside, where)
    raise InvalidInput(f"{where} starts no training that perrun knows", expected=f"a line of {', '.join(PROGRAMS)}")


def _call(call: Call, program: str, beside: dict[str, str], where: str) -> Read:
    n_gpus, n_nodes = _ranks(call)
    named = _named(call, beside)
    objective = _objective(call, program)
    if objective is not None and (program == "trl" or "model_name_or_path" in call.flags):
        flags = dict(call.flags)
        config = flags.pop("config", None)
        if config is not None:
            if config not in beside:
                raise InvalidInput(
                    f"{where} reads {config}, which is not beside it", expected="the file in the same folder"
                )
            flags = {**parsed(beside[config], str(config)), **flags}
        if "config_file" in flags:
            flags["accelerate_config"] = flags.pop("config_file")
        found = trl.from_flags(flags, beside, str(config or where), tables.ours("trl", "objective", objective, "trl"))
        if config is not None:
            found = _checked(found, beside[config])
    elif named is not None:
        target = which(beside[named], named)
        found = _checked(module(target).read(beside[named], beside, named), beside[named])
    else:
        raise InvalidInput(
            f"{where} names no configuration that lies beside it", expected="the file in the same folder"
        )
    return found.model_copy(update={"n_gpus": n_gpus or found.n_gpus, "n_nodes": n_nodes or found.n_nodes})


def _objective(call: Call, program: str) -> str | None:
    """What `trl NAME` or a launched script of that name trains for."""
    if program == "trl":
        return call.words[1] if len(call.words) > 1 else None
    return next((SCRIPTS[word.rpartition("/")[2]] for word in call.words if word.rpartition("/")[2] in SCRIPTS), None)


def _named(call: Call, beside: dict[str, str]) -> str | None:
    """The configuration that a call is about: its own before the launcher's."""
    words = [*call.words, *(str(value) for value in call.flags.values())]
    files = [word.rpartition("/")[2] for word in words]
    there = [name for name in files if name in beside]
    plain = [name for name in there if name not in (accelerate.FILE, deepspeed.FILE) and not name.endswith(".py")]
    scripts = [name for name in there if name.endswith(".py") and "FastLanguageModel" in beside[name]]
    return next(iter(plain + scripts + there), None)


def _ranks(call: Call) -> tuple[int | None, int | None]:
    """(GPUs over all machines, machines) by the launcher's flags or variables."""
    said = {**call.variables, **call.flags}

    def number(*names: str) -> int | None:
        value: Any = next((said[name] for name in names if name in said), None)
        return int(value) if isinstance(value, str) and value.isdigit() else None

    nodes = number("num_machines", "nnodes", "num_nodes", "NNODES")
    whole = number("num_processes")
    each = number("nproc_per_node", "num_gpus", "NPROC_PER_NODE")
    if whole is None and each is not None:
        whole = each * (nodes or 1)
    if whole is None and "CUDA_VISIBLE_DEVICES" in said:
        whole = len(str(said["CUDA_VISIBLE_DEVICES"]).split(","))
    return whole, nodes or (1 if whole is not None else None)


# --------------------------------------------------------------------------------- to job and strategy


def settings(found: Read, n_gpus: int | None = None) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """(job, strategy, notes) of a reading for so many GPUs: the global batch is what the micro batches make.

    n_gpus: what the user says; without it what the configuration says counts, else one, and the notes say so. The
    strategy has no grad_accum, which follows from the global batch.
    """
    job, strategy, notes = dict(found.job), dict(found.strategy), list(found.notes)
    accum = strategy.pop("grad_accum", None)
    ranks = n_gpus or found.n_gpus
    if n_gpus is not None and n_gpus > 1 and strategy.get("sharding") == "none":
        del strategy["sharding"]  # said of one GPU: the stack's own way is taken
    if n_gpus == 1 and strategy.get("sharding") not in (None, *ZERO):
        strategy["sharding"] = "none"
    if "global_batch" not in job and "micro_batch" in strategy:
        if ranks is None:
            notes.append("how many GPUs it runs on is not said: its batch is counted for one")
        copies = (ranks or 1) // (strategy.get("tp", 1) * strategy.get("pp", 1) * strategy.get("cp", 1))
        job["global_batch"] = strategy["micro_batch"] * (accum or 1) * max(copies, 1)
    return job, strategy, notes


def together(files: list[Path]) -> Read:
    """Several files that say one thing; the first has the last word."""
    found = [read_file(file) for file in files]
    whole = found[0]
    for other in found[1:]:
        whole = merged(whole, other)
    return _finished(whole)
