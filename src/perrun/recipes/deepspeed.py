"""DeepSpeed's own JSON: batch, ZeRO stage, offload and precision; for the user's script, or beside another file."""

import json
from typing import Any

from perrun.recipes import accelerate, hf, tables
from perrun.recipes.keys import Keys, parsed
from perrun.recipes.order import Order
from perrun.recipes.reading import Read
from perrun.terms import Recipe

FILE = "deepspeed.json"
NODES = ' --hostfile "$HOSTFILE"'


def config(order: Order) -> dict[str, Any]:
    """DeepSpeed's settings, numbers all: its own parser knows no 'auto', and infers train_batch_size from the ranks."""
    strategy = order.strategy
    stage = int(strategy.sharding.removeprefix("zero"))
    zero: dict[str, Any] = {
        "stage": stage,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "offload_optimizer": {"device": "cpu" if strategy.offload in ("optimizer", "both") else "none"},
    }
    if stage == 3:
        zero["offload_param"] = {"device": "cpu" if strategy.offload in ("params", "both") else "none"}
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    return {
        "train_micro_batch_size_per_gpu": strategy.micro_batch,
        "gradient_accumulation_steps": strategy.grad_accum,
        "gradient_clipping": 1.0,
        "zero_optimization": zero,
        "bf16": {"enabled": order.job.precision.startswith(("bf16", "fp8"))},
        "fp16": {"enabled": order.job.precision == "fp16-mixed"},
        # the optimizer is the script's (8-bit states among them), also where its states lie on the host
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 10,
        "wall_clock_breakdown": False,
    }


def dumped(order: Order) -> str:
    return json.dumps(config(order), indent=2) + "\n"


def emit(order: Order) -> Recipe:
    several = order.rig.n_nodes > 1
    count = f" --num_nodes {order.rig.n_nodes}" if several else ""
    command = f"deepspeed --num_gpus {order.gpus_per_node}{count}{NODES if several else ''} train.py --deepspeed {FILE}"
    job, strategy = order.job, order.strategy
    rows = f"rows cut at {job.seq_len}{', packed' if job.packing else ''}"
    return Recipe(
        target="deepspeed",
        files={FILE: dumped(order)},
        command=command,
        install=tables.install("deepspeed", "transformers", *(p for p in hf.packages(order) if p != "deepspeed")),
        assumptions=[
            f"left to the script: {job.method}, {job.optimizer}, {rows}, checkpointing {strategy.checkpointing}, "
            f"{strategy.attention} attention: DeepSpeed does not know them",
        ],
    )


IGNORED = (
    "gradient_clipping", "train_batch_size", "steps_per_print", "wall_clock_breakdown", "scheduler",
    "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer",
)  # fmt: skip


def read(text: str, beside: dict[str, str], where: str = FILE) -> Read:  # noqa: ARG001 - all readers are called alike
    """A DeepSpeed configuration; 'auto' is unsaid here, the Trainer's arguments say it. Raises InvalidInput."""
    data = parsed(text, where)
    keys = Keys({name: value for name, value in data.items() if value != "auto"}, where)
    strategy: dict[str, Any] = {}
    job: dict[str, Any] = {}
    hf.put(strategy, micro_batch=keys.whole("train_micro_batch_size_per_gpu"))
    hf.put(strategy, grad_accum=keys.whole("gradient_accumulation_steps"))
    left = _read_zero(keys.within("zero_optimization"), strategy)
    bf16, fp16 = (keys.within(name).data.get("enabled") for name in ("bf16", "fp16"))
    if True in (bf16, fp16):
        job["precision"] = "bf16-true" if bf16 is True else "fp16-mixed"
    elif bf16 is False and fp16 is False:
        job["precision"] = "fp32"
    optimizer = keys.within("optimizer")
    if optimizer.data:
        job["optimizer"] = tables.ours("deepspeed", "optimizer", optimizer.text("type"), optimizer.name("type"))
    keys.take(*IGNORED)
    return Read(target="deepspeed", job=job, strategy=strategy, unread=keys.rest() + left)


def _read_zero(keys: Keys, strategy: dict[str, Any]) -> list[str]:
    stage = keys.take("stage")
    if stage is None:
        return []
    if str(stage) not in ("0", "1", "2", "3"):
        raise keys.wrong(stage, "0, 1, 2 or 3", "stage")
    strategy["sharding"] = f"zero{stage}" if str(stage) != "0" else "ddp"
    states, params = keys.within("offload_optimizer"), keys.within("offload_param")
    strategy["offload"] = accelerate.offload(states.text("device"), params.text("device"))
    keys.take("overlap_comm", "contiguous_gradients", "stage3_gather_16bit_weights_on_model_save")
    return [f"zero_optimization.{name}" for name in keys.rest()]
