"""transformers' TrainingArguments as JSON, for the user's own script: what HfArgumentParser.parse_json_file reads.

They know neither the model nor the method; how ranks share the work stands in them too (fsdp, deepspeed). Source:
transformers 5.24.0, training_args.py.
"""

import json
from typing import Any

from perrun.recipes import commands, deepspeed, hf, tables
from perrun.recipes.keys import Keys, parsed
from perrun.recipes.order import ZERO, Order
from perrun.recipes.reading import Read, merged
from perrun.terms import Recipe

FILE = "arguments.json"


def settings(order: Order) -> dict[str, Any]:
    found = {**hf.arguments(order), "use_liger_kernel": order.strategy.fused_ce}
    if order.strategy.sharding in ZERO:
        found["deepspeed"] = deepspeed.FILE
    elif order.strategy.sharding in ("fsdp", "fsdp2"):
        new = order.strategy.sharding == "fsdp2"
        found["fsdp"] = True
        found["fsdp_config"] = {  # its own names: an unknown one is dropped in silence
            "version": 2 if new else 1,
            "reshard_after_forward": True if new else "full_shard",
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "cpu_offload": order.strategy.offload == "both",
            "cpu_ram_efficient_loading": not order.kbit,
            "state_dict_type": "FULL_STATE_DICT",
            "activation_checkpointing": False,
        }
    return found


def emit(order: Order) -> Recipe:
    nodes = order.rig.n_nodes
    several = f' --nnodes={nodes} --node_rank="$NODE_RANK" --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT"'
    command = f"torchrun --nproc_per_node={order.gpus_per_node}{several if nodes > 1 else ''} train.py {FILE}"
    install = tables.install("transformers", "peft", "accelerate", *_packages(order))
    files = {FILE: json.dumps(settings(order), indent=2) + "\n"}
    if order.strategy.sharding in ZERO:
        files[deepspeed.FILE] = deepspeed.dumped(order)
    files[commands.SCRIPT] = commands.script(install, command)
    job = order.job
    return Recipe(
        target="trainer",
        files=files,
        command=command,
        install=install,
        assumptions=[
            f"left to train.py: the model in {hf.dtype(order)} as {job.method}, {order.strategy.attention} attention, "
            f"rows cut at {job.seq_len}{', packed' if job.packing else ''}: TrainingArguments do not know them",
        ],
    )


def _packages(order: Order) -> list[str]:
    return hf.packages(order) + (["liger-kernel"] if order.strategy.fused_ce else [])


def read(text: str, beside: dict[str, str], where: str = FILE) -> Read:
    """TrainingArguments, as a script or `args.to_json_string()` writes them. Raises InvalidInput that names the key."""
    keys = Keys(parsed(text, where), where)
    job, strategy = hf.read_arguments(keys)
    strategy["framework"] = "transformers"
    strategy.setdefault("checkpointing", "none")
    strategy.setdefault("fused_ce", False)
    bf16, fp16 = keys.flag("bf16"), keys.flag("fp16")
    notes: list[str] = []
    if fp16:
        job["precision"] = "fp16-mixed"
    elif bf16:
        notes.append("bf16 is how it computes; in which type the weights are stored is the script's: say --precision")
    kernel = keys.text("attn_implementation")
    if kernel is not None:
        strategy["attention"] = tables.ours("hf", "attention", kernel, keys.name("attn_implementation"))
    left = _read_fsdp(keys, strategy)
    named = keys.text("deepspeed") if not isinstance(keys.data.get("deepspeed"), dict) else None
    inline = keys.within("deepspeed") if isinstance(keys.data.get("deepspeed"), dict) else None
    found = Read(target="trainer", job=job, strategy=strategy, unread=keys.rest() + left, notes=notes)
    if inline is not None:
        return merged(found, deepspeed.read(json.dumps(inline.data), {}, inline.where))
    if named is not None:
        name = named.rpartition("/")[2]
        if name in beside:
            return merged(found, deepspeed.read(beside[name], {}, name))
        return found.model_copy(update={"unread": [*found.unread, "deepspeed (the file is not beside it)"]})
    return found


def _read_fsdp(keys: Keys, strategy: dict[str, Any]) -> list[str]:
    """`fsdp: true` with a configuration, or the words of old ('full_shard auto_wrap offload')."""
    words = keys.take("fsdp")
    if not words:
        keys.take("fsdp_config")
        return []
    spelled = "" if isinstance(words, bool) else str(words).lower()
    config = keys.within("fsdp_config")
    version = config.whole("version", "fsdp_version") or 2
    strategy["sharding"] = "fsdp2" if version == 2 else "fsdp"
    offloaded = bool(config.flag("cpu_offload", "offload_params")) or "offload" in spelled
    strategy["offload"] = "both" if offloaded else "none"
    if config.flag("activation_checkpointing"):
        strategy["checkpointing"] = "full"
    for name in ("reshard_after_forward", "auto_wrap_policy", "cpu_ram_efficient_loading", "state_dict_type"):
        config.take(name)
    config.take("min_num_params", "transformer_layer_cls_to_wrap", "xla", "xla_fsdp_v2", "xla_fsdp_grad_ckpt")
    return [f"fsdp_config.{name}" for name in config.rest()]
