"""TRL: one YAML for its command line, and the launch configuration that says how ranks share the work.

TRL 1.x keeps weights in fp32, checkpoints, and cuts rows at 1024 tokens unless told; each is told here. Since 1.16 the
head and the loss of all its trainers but the reward's are one, in chunks: there is no switch for it.

Source: trl 1.16.0, trl/trainer/*_config.py, *_trainer.py (add_fused_lm_head), model_config.py, trl/scripts/utils.py.
"""

from math import gcd
from typing import Any

from perrun.errors import InvalidInput
from perrun.recipes import accelerate, commands, hf, tables
from perrun.recipes.keys import Keys, parsed
from perrun.recipes.order import Order, as_yaml, assumed, header, lora_modules
from perrun.recipes.reading import Read, merged
from perrun.terms import Recipe

FILE = "trl.yaml"
MOST_GENERATIONS = 8  # trl's own default


def generations(order: Order) -> int:
    """Answers a prompt in GRPO: at most trl's 8, as many as divide what a GPU sees per step."""
    return gcd(MOST_GENERATIONS, order.strategy.micro_batch * order.strategy.grad_accum)


def refusals(order: Order) -> list[str]:
    """What its configuration classes refuse."""
    found: list[str] = []
    if order.job.objective == "grpo" and generations(order) == 1:
        found.append("grpo with an odd number of answers per GPU and step: a prompt needs at least two")
    if not order.strategy.fused_ce and order.job.objective != "rm":
        found.append("a loss over all logits (trl 1.16 never stores them)")
    return found


def settings(order: Order) -> dict[str, Any]:
    """The flags of `trl <objective>` by name."""
    job, strategy = order.job, order.strategy
    found: dict[str, Any] = {
        "model_name_or_path": job.model,
        "dtype": hf.dtype(order),
        "attn_implementation": tables.theirs("hf", "attention", strategy.attention),
        **adapters(order),
        **data(order),
        **hf.arguments(order),
    }
    if job.objective == "grpo":
        return {**found, "num_generations": generations(order), "max_completion_length": job.seq_len}
    found["max_length"] = job.seq_len
    found["activation_offloading"] = False
    if job.objective == "sft":
        found["packing"] = job.packing
        # best fit, decreasing: whole rows joined to sequences of at most max_length, none sees another
        found["packing_strategy"] = "bfd"
        found["padding_free"] = False
        found["loss_type"] = "nll"
    elif job.objective == "dpo":
        found |= {"loss_type": ["sigmoid"], "beta": 0.1, "precompute_ref_log_probs": False}
    elif job.objective == "kto":
        found |= {"beta": 0.1, "desirable_weight": 1.0, "undesirable_weight": 1.0}
    else:
        found["disable_dropout"] = True
    return found


def adapters(order: Order) -> dict[str, Any]:
    """LoRA and the loading of the base, as TRL's ModelConfig calls them."""
    job = order.job
    if not job.adapters:
        return {"use_peft": False}
    found: dict[str, Any] = {
        "use_peft": True,
        "lora_r": job.lora_rank,
        "lora_alpha": 2 * job.lora_rank,
        "lora_dropout": 0.0,
        "lora_target_modules": lora_modules(order) or ["all-linear"],
        "lora_task_type": "SEQ_CLS" if job.objective == "rm" else "CAUSAL_LM",
        "use_dora": job.method in ("dora", "qdora"),
        "load_in_4bit": hf.bits(job.method) == 4,
        "load_in_8bit": hf.bits(job.method) == 8,
    }
    if hf.bits(job.method) == 4:
        found["bnb_4bit_quant_type"] = "nf4"
        found["use_bnb_nested_quant"] = True
        if order.strategy.sharding not in ("none", "ddp"):  # FSDP and ZeRO-3 split only storage of a floating type
            found["bnb_4bit_quant_storage"] = hf.dtype(order)
    return found


def data(order: Order) -> dict[str, Any]:
    """Where rows come from: files of this machine, or a data set of the hub."""
    if not order.local_data:
        return {"dataset_name": order.data, "dataset_train_split": "train"}
    ending = order.data.rpartition(".")[2]
    kind = "json" if ending == "jsonl" else ending
    return {"datasets": [{"path": kind, "data_files": [order.data], "split": "train"}], "dataset_train_split": "train"}


def command(order: Order) -> str:
    """`trl` starts accelerate, which takes every GPU that it sees unless a file says how many."""
    name = tables.theirs("trl", "objective", order.job.objective)
    count = f"--accelerate_config {accelerate.FILE} --num_processes {order.rig.n_gpus}"
    machines = f" --num_machines {order.rig.n_nodes}{accelerate.flags(order)}" if order.rig.n_nodes > 1 else ""
    return f"trl {name} --config {FILE} {count}{machines}"


def emit(order: Order) -> Recipe:
    install = tables.install("trl", "transformers", "peft", "accelerate", "datasets", *hf.packages(order))
    return Recipe(
        target="trl",
        files={
            FILE: as_yaml(settings(order), header(order)),
            accelerate.FILE: as_yaml(accelerate.config(order), header(order)),
            commands.SCRIPT: commands.script(install, command(order)),
        },
        command=command(order),
        install=install,
        assumptions=assumptions(order),
    )


def assumptions(order: Order) -> list[str]:
    lines = assumed(order)
    if order.job.objective == "grpo":
        lines.append(
            f"{generations(order)} answers a prompt, written by the model itself (no vLLM), of at most seq_len tokens"
        )
        lines.append("trl grpo needs its reward: add --reward_funcs NAME (a function, or a reward model's id)")
    if order.job.packing and order.strategy.attention in ("eager", "sdpa"):
        lines.append("packed rows are kept apart by a mask: only the flash kernels skip what it hides")
    return lines


# --------------------------------------------------------------------------------------------- reading


def read(text: str, beside: dict[str, str], where: str = FILE) -> Read:
    """A YAML for `trl`, or its flags as a mapping. Raises InvalidInput that names the key."""
    return from_flags(parsed(text, where), beside, where)


def from_flags(flags: dict[str, Any], beside: dict[str, str], where: str, objective: str | None = None) -> Read:
    """Flags of a command line or keys of a file, and the accelerate configuration that they name."""
    launched = flags.get("accelerate_config")
    keys = Keys(flags, where)
    keys.take(
        "accelerate_config",
        "datasets",
        "dataset_name",
        "dataset_train_split",
        "output_dir",
        "lora_alpha",
        "lora_dropout",
    )
    job, strategy = hf.read_arguments(keys)
    strategy["framework"] = "trl"
    strategy.setdefault("checkpointing", "full")  # trl's own default, unlike the Trainer's
    hf.put(job, model=keys.text("model_name_or_path", "model"), objective=objective or guessed(flags))
    _read_loading(keys, job, strategy)
    _read_rows(keys, job, strategy)
    n_gpus, n_nodes = keys.whole("num_processes"), keys.whole("num_machines")
    found = Read(target="trl", job=job, strategy=strategy, n_gpus=n_gpus, n_nodes=n_nodes, unread=keys.rest())
    return _launched(found, launched, beside)


def guessed(flags: dict[str, Any]) -> str:
    """The objective that only some commands' flags tell; sft where none of them stands there."""
    for flag, objective in (("num_generations", "grpo"), ("desirable_weight", "kto"), ("beta", "dpo")):
        if flag in flags:
            return objective
    return "rm" if "disable_dropout" in flags else "sft"


def _read_loading(keys: Keys, job: dict[str, Any], strategy: dict[str, Any]) -> None:
    four, eight = keys.flag("load_in_4bit"), keys.flag("load_in_8bit")
    peft = bool(keys.flag("use_peft"))
    if (four or eight) and not peft:
        which = "load_in_4bit" if four else "load_in_8bit"
        raise InvalidInput(
            f"{keys.name(which)} without use_peft: nothing of a k-bit base can train", expected="use_peft: true"
        )
    dora = bool(keys.flag("use_dora"))
    job["method"] = hf.method(peft=peft, bits=4 if four else 8 if eight else None, dora=dora)
    rank, targets = keys.whole("lora_r"), keys.take("lora_target_modules")
    if peft:
        job["lora_rank"] = rank or 16
        if targets is not None:
            job["lora_targets"] = hf.our_targets(targets, keys.name("lora_target_modules"), job.get("model"))
    keys.take("lora_task_type", "bnb_4bit_quant_type", "use_bnb_nested_quant", "bnb_4bit_quant_storage")
    stored = keys.text("dtype", "torch_dtype")
    bf16, fp16 = keys.flag("bf16"), keys.flag("fp16")
    mixed = bf16 if bf16 is not None else not fp16  # trl computes in bf16 unless told otherwise
    job["precision"] = hf.precision("bfloat16" if stored == "auto" else stored, mixed, fp16)
    kernel = keys.text("attn_implementation")
    if kernel is not None:
        strategy["attention"] = tables.ours("hf", "attention", kernel, keys.name("attn_implementation"))


def _read_rows(keys: Keys, job: dict[str, Any], strategy: dict[str, Any]) -> None:
    longest = keys.whole("max_completion_length") if job["objective"] == "grpo" else keys.whole("max_length")
    job["seq_len"] = longest or 1024
    packing = keys.flag("packing")
    job["packing"] = bool(packing)
    keys.take("loss_type")
    strategy["fused_ce"] = job["objective"] != "rm"
    keys.take("beta", "desirable_weight", "undesirable_weight", "num_generations")
    keys.take("machine_rank", "main_process_ip", "main_process_port")
    keys.take(
        "packing_strategy", "padding_free", "activation_offloading", "precompute_ref_log_probs", "disable_dropout"
    )


def _launched(found: Read, launched: Any, beside: dict[str, str]) -> Read:
    """With what the accelerate configuration says: a file, or one of those that come with trl."""
    if launched is None:
        launched = accelerate.FILE if accelerate.FILE in beside else None
    if launched is None:
        return found
    name = str(launched)
    other = accelerate.read(beside[name], beside, name) if name in beside else _shipped(name)
    job = {
        **found.job,
        **({"precision": other.job["precision"]} if other.job.get("precision") in ("fp8", "mxfp8") else {}),
    }
    return merged(found.model_copy(update={"job": job}), other)


# trl/accelerate_configs: each is for 8 processes unless --num_processes says otherwise
SHIPPED = {
    "single_gpu": ("none", 1), "multi_gpu": ("ddp", 8), "fsdp1": ("fsdp", 8), "fsdp2": ("fsdp2", 8),
    "zero1": ("zero1", 8), "zero2": ("zero2", 8), "zero3": ("zero3", 8),
}  # fmt: skip


def _shipped(name: str) -> Read:
    if name not in SHIPPED:
        raise InvalidInput(
            f"accelerate_config {name!r} is not beside the file", expected=f"a file, or {', '.join(SHIPPED)}"
        )
    sharding, processes = SHIPPED[name]
    return Read(target="accelerate", strategy={"sharding": sharding, "offload": "none"}, n_gpus=processes, n_nodes=1)
