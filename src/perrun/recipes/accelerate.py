"""accelerate: a launch configuration for the user's own script, and the one that TRL and LLaMA-Factory are launched by.

It knows how ranks share the work and in which precision, nothing of the model or the data.
"""

from typing import Any

from perrun.errors import InvalidInput
from perrun.recipes import hf, tables
from perrun.recipes.keys import Keys, parsed
from perrun.recipes.order import Order, as_yaml, header
from perrun.recipes.reading import Read
from perrun.terms import Recipe

FILE = "accelerate.yaml"
MIXED = {"bf16-true": "bf16", "bf16-mixed": "bf16", "fp16-mixed": "fp16", "fp32": "no", "fp8": "fp8", "mxfp8": "fp8"}
NODES = ' --machine_rank "$NODE_RANK" --main_process_ip "$MASTER_ADDR" --main_process_port "$MASTER_PORT"'
ASSUMED = [
    "your script loads the weights in the type of the plan and applies its method, optimizer and loss: "
    "accelerate does not know them",
]


def config(order: Order, *, own_loop: bool = False) -> dict[str, Any]:
    """A ClusterConfig. own_loop: the script leaves checkpointing and compiling to accelerate."""
    rig, sharding = order.rig, order.strategy.sharding
    kind = {"none": "NO", "ddp": "MULTI_GPU", "fsdp": "FSDP", "fsdp2": "FSDP"}.get(sharding, "DEEPSPEED")
    settings: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": kind,
        "mixed_precision": MIXED[order.job.precision],
        "num_machines": rig.n_nodes,
        "num_processes": rig.n_gpus,
        "machine_rank": 0,
        "main_training_function": "main",
        "rdzv_backend": "static",
        "same_network": True,
        "downcast_bf16": "no",
        "enable_cpu_affinity": False,
        "use_cpu": False,
        "debug": False,
    }
    if kind == "FSDP":
        settings["fsdp_config"] = fsdp(order, own_loop)
    elif kind == "DEEPSPEED":
        settings["deepspeed_config"] = zero(order)
    if order.job.precision in ("fp8", "mxfp8"):
        settings["fp8_config"] = fp8(order)
    if own_loop and order.strategy.compile:
        settings["dynamo_config"] = {"dynamo_backend": "INDUCTOR"}
    return settings


def fsdp(order: Order, own_loop: bool) -> dict[str, Any]:
    """Version 2 shards each parameter (DTensor); version 1 flattens a layer's into one."""
    new = order.strategy.sharding == "fsdp2"
    shared = {
        "fsdp_version": 2 if new else 1,
        "fsdp_reshard_after_forward": True if new else "FULL_SHARD",
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_offload_params": order.strategy.offload == "both",
        # a 4-bit base cannot be built on the meta device and filled later
        "fsdp_cpu_ram_efficient_loading": not order.kbit,
        "fsdp_state_dict_type": "FULL_STATE_DICT",
        "fsdp_activation_checkpointing": own_loop and order.strategy.checkpointing == "full",
    }
    if new:
        return shared
    return {
        **shared,
        "fsdp_backward_prefetch": "BACKWARD_PRE",
        "fsdp_forward_prefetch": False,
        "fsdp_sync_module_states": True,
        "fsdp_use_orig_params": True,
    }


def zero(order: Order) -> dict[str, Any]:
    """What accelerate's DeepSpeed plugin reads; stage and offload as the plan has them."""
    strategy = order.strategy
    stage = int(strategy.sharding.removeprefix("zero"))
    settings: dict[str, Any] = {
        "zero_stage": stage,
        "gradient_accumulation_steps": strategy.grad_accum,
        "gradient_clipping": 1.0,
        "offload_optimizer_device": "cpu" if strategy.offload in ("optimizer", "both") else "none",
        "offload_param_device": "cpu" if strategy.offload in ("params", "both") else "none",
        "zero3_init_flag": stage == 3 and not order.kbit,
        "zero3_save_16bit_model": stage == 3,
    }
    if order.rig.n_nodes > 1:
        settings["deepspeed_multinode_launcher"] = "standard"
    return settings


def fp8(order: Order) -> dict[str, Any]:
    """torchao's float8 for fp8; Transformer Engine, which has block scales of 32, for mxfp8."""
    if order.job.precision == "mxfp8":
        return {
            "backend": "TE",
            "fp8_format": "E4M3",
            "use_mxfp8_block_scaling": True,
            "use_autocast_during_eval": False,
        }
    return {
        "backend": "AO",
        "pad_inner_dim": True,
        "enable_fsdp_float8_all_gather": order.strategy.sharding == "fsdp2",
    }


def flags(order: Order) -> str:
    """What the command line must say on several machines: the file is the same on all."""
    return NODES if order.rig.n_nodes > 1 else ""


def emit(order: Order) -> Recipe:
    command = f"accelerate launch --config_file {FILE}{flags(order)} train.py"
    return Recipe(
        target="accelerate",
        files={FILE: as_yaml(config(order, own_loop=True), header(order))},
        command=command,
        install=tables.install("accelerate", "transformers", "peft", *hf.packages(order)),
        assumptions=[*ASSUMED, _left_to_the_script(order)],
    )


def _left_to_the_script(order: Order) -> str:
    job, strategy = order.job, order.strategy
    batch = f"micro batch {strategy.micro_batch}, gradient accumulation of {strategy.grad_accum}"
    kept = "" if strategy.sharding.startswith("fsdp") else f", checkpointing {strategy.checkpointing}"
    return (
        f"left to the script: {job.method} in {hf.dtype(order)}, {job.optimizer}, rows cut at {job.seq_len}"
        f"{', packed' if job.packing else ''}, {batch}, {strategy.attention} attention, "
        f"{'a fused' if strategy.fused_ce else 'a plain'} loss{kept}"
    )


# --------------------------------------------------------------------------------------------- reading


def read(text: str, beside: dict[str, str], where: str = FILE) -> Read:
    """A launch configuration. Raises InvalidInput that names the key."""
    keys = Keys(parsed(text, where), where)
    strategy, job, unread = read_config(keys)
    processes, machines = keys.whole("num_processes"), keys.whole("num_machines")
    for name in ("compute_environment", "machine_rank", "main_training_function", "rdzv_backend", "same_network"):
        keys.take(name)
    for name in ("downcast_bf16", "enable_cpu_affinity", "use_cpu", "debug", "gpu_ids", "main_process_ip"):
        keys.take(name)
    found = Read(
        target="accelerate", job=job, strategy=strategy, n_gpus=processes, n_nodes=machines, unread=keys.rest() + unread
    )
    file = _deepspeed_file(keys)
    if file is not None and file in beside:
        from perrun.recipes import deepspeed
        from perrun.recipes.reading import merged

        return merged(deepspeed.read(beside[file], {}, file), found).model_copy(update={"target": "accelerate"})
    return found


def _deepspeed_file(keys: Keys) -> str | None:
    config = keys.data.get("deepspeed_config")
    return config.get("deepspeed_config_file") if isinstance(config, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


def read_config(keys: Keys) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """(strategy, job, keys left over) of how ranks share the work."""
    strategy: dict[str, Any] = {}
    job: dict[str, Any] = {}
    left: list[str] = []
    kind = (keys.text("distributed_type") or "NO").upper()
    if kind == "FSDP":
        left += _read_fsdp(keys.within("fsdp_config"), strategy)
    elif kind == "DEEPSPEED":
        left += _read_zero(keys.within("deepspeed_config"), strategy)
    elif kind in ("NO", "MULTI_GPU"):
        strategy["sharding"] = "ddp" if kind == "MULTI_GPU" else "none"
    else:
        raise keys.wrong(kind, "NO, MULTI_GPU, FSDP or DEEPSPEED", "distributed_type")
    mixed = (keys.text("mixed_precision") or "no").lower()
    if mixed == "fp8":
        recipe = keys.within("fp8_config")
        job["precision"] = "mxfp8" if recipe.flag("use_mxfp8_block_scaling") else "fp8"
    elif mixed == "fp16":
        job["precision"] = "fp16-mixed"
    dynamo = keys.within("dynamo_config")
    if (dynamo.text("dynamo_backend") or "NO").upper() != "NO":
        strategy["compile"] = True
    return strategy, job, left


def _read_fsdp(keys: Keys, strategy: dict[str, Any]) -> list[str]:
    version = keys.whole("fsdp_version") or 1
    if version not in (1, 2):
        raise keys.wrong(version, "1 or 2", "fsdp_version")
    kept = str(keys.take("fsdp_reshard_after_forward", "fsdp_sharding_strategy") or "FULL_SHARD").upper()
    names = {
        "FULL_SHARD": f"fsdp{2 if version == 2 else ''}",
        "TRUE": "fsdp2",
        "SHARD_GRAD_OP": "zero2",
        "FALSE": "zero2",
    }
    if kept not in ("1", *names):
        raise keys.wrong(kept, "FULL_SHARD, SHARD_GRAD_OP, true or false", "fsdp_reshard_after_forward")
    strategy["sharding"] = names.get(kept, "fsdp")
    strategy["offload"] = "both" if keys.flag("fsdp_offload_params") else "none"
    if keys.flag("fsdp_activation_checkpointing"):
        strategy["checkpointing"] = "full"
    for name in ("auto_wrap_policy", "cpu_ram_efficient_loading", "state_dict_type", "backward_prefetch"):
        keys.take(f"fsdp_{name}")
    for name in ("forward_prefetch", "sync_module_states", "use_orig_params", "transformer_layer_cls_to_wrap"):
        keys.take(f"fsdp_{name}")
    return [f"fsdp_config.{name}" for name in keys.rest()]


def _read_zero(keys: Keys, strategy: dict[str, Any]) -> list[str]:
    if keys.text("deepspeed_config_file"):
        return [f"deepspeed_config.{name}" for name in keys.rest()]
    stage = keys.take("zero_stage")
    if str(stage) not in ("0", "1", "2", "3"):
        raise keys.wrong(stage, "0, 1, 2 or 3", "zero_stage")
    strategy["sharding"] = f"zero{stage}" if str(stage) != "0" else "ddp"
    strategy["offload"] = offload(keys.text("offload_optimizer_device"), keys.text("offload_param_device"))
    accumulated = keys.take("gradient_accumulation_steps")
    if accumulated not in (None, "auto"):
        hf.put(strategy, grad_accum=keys.whole("gradient_accumulation_steps"))
    for name in ("gradient_clipping", "zero3_init_flag", "zero3_save_16bit_model", "deepspeed_multinode_launcher"):
        keys.take(name)
    return [f"deepspeed_config.{name}" for name in keys.rest()]


def offload(optimizer: str | None, params: str | None) -> str:
    """Our word for what lies on the host."""
    moved = [device not in (None, "none") for device in (optimizer, params)]
    if "nvme" in (optimizer, params):
        raise InvalidInput("offload to NVMe: perrun has no law for it", expected="cpu or none")
    return {(True, True): "both", (True, False): "optimizer", (False, True): "params"}.get((moved[0], moved[1]), "none")
