"""What every stack on transformers shares: the arguments of its Trainer, LoRA words, the loading of a k-bit base."""

from typing import Any

from perrun.errors import InvalidInput
from perrun.recipes import tables
from perrun.recipes.keys import Keys
from perrun.recipes.order import FP8, Order

SAVE_STEPS = 100
# arguments that change neither memory nor time of a run
NO_COST = (
    "output_dir", "overwrite_output_dir", "learning_rate", "lr_scheduler_type", "warmup_ratio", "warmup_steps",
    "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "logging_dir", "logging_steps",
    "logging_strategy", "report_to", "run_name", "save_strategy", "save_steps", "save_total_limit", "seed", "data_seed",
    "push_to_hub", "do_train", "resume_from_checkpoint", "disable_tqdm",
)  # fmt: skip
# transformers writes optimizer states of torchao; bitsandbytes' are no DTensors and break under FSDP2
FSDP2_OPTIMIZERS = {"adamw-8bit": "adamw_torch_8bit"}


def optimizer(order: Order) -> str:
    name = order.job.optimizer
    sharded = order.strategy.sharding == "fsdp2"
    return (FSDP2_OPTIMIZERS.get(name) if sharded else None) or tables.theirs("hf", "optimizer", name)


def arguments(order: Order) -> dict[str, Any]:
    """TrainingArguments by name, every one that the plan rests on. Under FP8 accelerate alone says the precision."""
    job, strategy = order.job, order.strategy
    checkpointed = strategy.checkpointing != "none"
    return {
        "output_dir": order.out,
        "per_device_train_batch_size": strategy.micro_batch,
        "gradient_accumulation_steps": strategy.grad_accum,
        "num_train_epochs": job.epochs,
        "max_steps": order.steps or -1,
        "learning_rate": order.learning_rate,
        "optim": optimizer(order),
        "bf16": job.precision in ("bf16-true", "bf16-mixed"),
        "fp16": job.precision == "fp16-mixed",
        "gradient_checkpointing": checkpointed,
        **({"gradient_checkpointing_kwargs": {"use_reentrant": False}} if checkpointed else {}),
        "torch_compile": strategy.compile,
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_steps": SAVE_STEPS,
        "save_total_limit": 2,
        "eval_strategy": "no",
        "report_to": "none",
        "seed": 42,
    }


def read_arguments(keys: Keys) -> tuple[dict[str, Any], dict[str, Any]]:
    """(job, strategy) fields of TrainingArguments that stand there; precision is read by `read_precision`."""
    job: dict[str, Any] = {}
    strategy: dict[str, Any] = {}
    put(strategy, micro_batch=keys.whole("per_device_train_batch_size", "per_gpu_train_batch_size"))
    put(strategy, grad_accum=keys.whole("gradient_accumulation_steps"))
    put(job, epochs=keys.number("num_train_epochs"))
    spelled = keys.text("optim")
    if spelled is not None:
        job["optimizer"] = tables.ours("hf", "optimizer", spelled, keys.name("optim"))
    checkpointed = keys.flag("gradient_checkpointing", "activation_checkpointing")
    keys.take("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs")
    put(strategy, checkpointing=None if checkpointed is None else ("full" if checkpointed else "none"))
    put(strategy, compile=keys.flag("torch_compile"))
    if keys.flag("use_liger_kernel"):
        strategy["fused_ce"] = True
    keys.take(*NO_COST)
    if keys.data.get("max_steps") in (-1, "-1", None):
        keys.take("max_steps")
    if keys.data.get("eval_strategy") in ("no", False):
        keys.take("eval_strategy")
    return job, strategy


def put(into: dict[str, Any], **fields: Any) -> None:
    """Adds the fields that are known."""
    into.update({name: value for name, value in fields.items() if value is not None})


# -------------------------------------------------------------------------------- LoRA and k-bit bases


def our_targets(given: Any, key: str, model: str | None, everything: tuple[str, ...] = ("all-linear", "all")) -> str:
    """Our word for LoRA target modules: a name for the set where it is one of the model's, else the names."""
    if isinstance(given, str):
        names = [name for name in given.replace(",", " ").replace("[", " ").replace("]", " ").split() if name]
    elif isinstance(given, list):
        names = [str(name) for name in given]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    else:
        raise InvalidInput(f"{key} is {given!r}", expected="module names")
    names = [name.strip("'\"") for name in names]
    if len(names) == 1 and names[0] in everything:
        return "all-linear"
    return _named_set(set(names), model) or ",".join(names)


def _named_set(names: set[str], model: str | None) -> str | None:
    """all-linear, attn or attn-qv where the names are just that in the model; None where they are not."""
    if names == {"q_proj", "v_proj"}:
        return "attn-qv"
    shape = known_shape(model)
    if shape is None:
        return "attn" if names == {"q_proj", "k_proj", "v_proj", "o_proj"} else None
    from perrun.physics.params import targeted

    for word in ("all-linear", "attn", "attn-qv"):
        if names == {m.name for layer in shape.layers for m in layer.linears if targeted(m, word)}:
            return word
    return None


def known_shape(model: str | None) -> Any:
    """The shape of a model that perrun knows; None for any other."""
    from perrun.errors import PerrunError
    from perrun.facts import models

    try:
        return models.get(model).shape if model else None
    except PerrunError:
        return None


def method(*, peft: bool, bits: int | None, dora: bool) -> str:
    """Our word for what is trained on which base."""
    if bits == 4:
        return "qdora" if dora else "qlora"
    if bits == 8:
        return "lora-int8"
    if not peft:
        return "full"
    return "dora" if dora else "lora"


def bits(job_method: str) -> int | None:
    """Bits of the base's matrices; None where they are not quantised."""
    return {"qlora": 4, "qdora": 4, "lora-int8": 8}.get(job_method)


def dtype(order: Order) -> str:
    """The type that weights are stored in."""
    return "bfloat16" if order.job.precision in ("bf16-true", *FP8) else "float32"


def precision(stored: str | None, bf16: bool | None, fp16: bool | None) -> str:
    """Our word for a storage type under (or without) autocast. stored None: fp32."""
    if stored in ("bfloat16", "bf16"):
        return "bf16-true"
    if fp16:
        return "fp16-mixed"
    return "bf16-mixed" if bf16 else "fp32"


def packages(order: Order) -> list[str]:
    """Packages that a run needs beside its stack."""
    job, strategy = order.job, order.strategy
    found: list[str] = []
    if (
        order.kbit
        or job.optimizer in ("paged-adamw-8bit", "paged-adamw-32bit", "lion-8bit")
        or (job.optimizer == "adamw-8bit" and strategy.sharding != "fsdp2")
    ):
        found.append("bitsandbytes")
    if job.optimizer == "adamw-4bit" or (job.optimizer == "adamw-8bit" and strategy.sharding == "fsdp2"):
        found.append("torchao")
    if strategy.sharding.startswith("zero"):
        found.append("deepspeed")
    if strategy.attention in ("flash2", "flash3"):
        found.append("flash-attn")
    if job.precision == "fp8":
        found.append("torchao")
    if job.precision == "mxfp8":
        found.append("transformer-engine")
    return list(dict.fromkeys(found))
