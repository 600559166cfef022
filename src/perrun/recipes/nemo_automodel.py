"""NeMo AutoModel: one YAML that its `automodel` command runs.

The whole of the batch is written (step_scheduler), accumulation follows from the ranks. Source: nemo-automodel 0.7.0,
cli/app.py, recipes/_dist_utils.py (parse_distributed_section), components/_peft/lora.py (PeftConfig),
components/quantization/fp8.py, components/training/step_scheduler.py, components/datasets/llm/chat_dataset.py.
"""

from typing import Any

from perrun.recipes import commands, hf, tables
from perrun.recipes.keys import Keys, parsed
from perrun.recipes.order import Order, as_yaml, assumed, header, lora_modules
from perrun.recipes.reading import Read
from perrun.terms import Recipe

FILE = "nemo_automodel.yaml"
FUSED = "nemo_automodel.components.loss.linear_ce.FusedLinearCrossEntropy"
PLAIN = "nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy"
OFFLOAD = "torch.distributed.fsdp.CPUOffloadPolicy"
DEGREES = ("tp", "pp", "cp", "ep")


def refusals(order: Order) -> list[str]:
    """What its schedule and its adapters cannot say."""
    job, found = order.job, list[str]()
    if job.epochs != int(job.epochs):
        found.append(f"{job.epochs:g} epochs (it counts whole ones)")
    if job.method == "dora" and order.strategy.tp > 1:
        found.append("dora with tensor parallelism")
    if order.strategy.sharding == "ddp" and any(getattr(order.strategy, name) > 1 for name in DEGREES):
        found.append("model parallelism under ddp")
    if order.strategy.pp > 1 and order.strategy.checkpointing != "none" and job.adapters:
        found.append("checkpointed adapters in a pipeline")
    return found


def settings(order: Order) -> dict[str, Any]:
    job, strategy = order.job, order.strategy
    return {
        "recipe": "TrainFinetuneRecipeForNextTokenPrediction",
        "seed": 42,
        "step_scheduler": {
            "global_batch_size": job.global_batch,
            "local_batch_size": strategy.micro_batch,
            "num_epochs": int(job.epochs),
            **({"max_steps": order.steps} if order.steps else {}),
            "ckpt_every_steps": hf.SAVE_STEPS,
        },
        "dist_env": {"backend": "nccl", "timeout_minutes": 10},
        "model": {
            "_target_": "nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained",
            "pretrained_model_name_or_path": job.model,
            "torch_dtype": "bfloat16",
            "attn_implementation": tables.theirs("hf", "attention", strategy.attention),
            "use_liger_kernel": False,
        },
        **adapters(order),
        "distributed": distributed(order),
        **fp8(order),
        **({"compile": {"enabled": True, "mode": "default", "fullgraph": False}} if strategy.compile else {}),
        "loss_fn": {"_target_": FUSED if strategy.fused_ce else PLAIN},
        "dataset": {
            "_target_": "nemo_automodel.components.datasets.llm.chat_dataset.ChatDataset",
            "path_or_dataset_id": order.data,
            "seq_length": job.seq_len,
            "truncation": "longest_first",
            "padding": "do_not_pad",
        },
        "packed_sequence": {"packed_sequence_size": job.seq_len if job.packing else 0},
        "dataloader": {
            "_target_": "torchdata.stateful_dataloader.StatefulDataLoader",
            "collate_fn": "nemo_automodel.components.datasets.utils.default_collater",
            "shuffle": True,
        },
        "optimizer": {
            "_target_": tables.theirs("nemo", "optimizer", job.optimizer),
            "lr": order.learning_rate,
            "betas": [0.9, 0.999],
            "weight_decay": 0.0,
        },
        "checkpoint": {"enabled": True, "checkpoint_dir": order.out, "model_save_format": "safetensors"},
    }


def adapters(order: Order) -> dict[str, Any]:
    job = order.job
    if not job.adapters:
        return {}
    names = lora_modules(order)
    found: dict[str, Any] = {
        "peft": {
            "_target_": "nemo_automodel.components._peft.lora.PeftConfig",
            **({"target_modules": [f"*.{name}" for name in names]} if names else {"match_all_linear": True}),
            "dim": job.lora_rank,
            "alpha": 2 * job.lora_rank,
            "dropout": 0.0,
            "use_dora": job.method == "dora",
        }
    }
    if order.kbit:
        found["quantization"] = {
            "load_in_4bit": True,
            "load_in_8bit": False,
            "bnb_4bit_compute_dtype": "bfloat16",
            "bnb_4bit_use_double_quant": True,
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_quant_storage": "bfloat16",
        }
    return found


def distributed(order: Order) -> dict[str, Any]:
    strategy = order.strategy
    found: dict[str, Any] = {
        "strategy": "fsdp2" if strategy.sharding == "fsdp2" else "ddp",
        "activation_checkpointing": strategy.checkpointing == "full",
    }
    if strategy.sharding == "fsdp2":
        found |= {f"{degree}_size": getattr(strategy, degree) for degree in DEGREES}
        found["dp_size"] = None
        found["sequence_parallel"] = False
        if strategy.offload == "both":
            found["offload_policy"] = {"_target_": OFFLOAD, "pin_memory": True}
        if strategy.pp > 1:
            found["pipeline"] = {"pp_schedule": "1f1b", "pp_microbatch_size": 1}
    return found


def fp8(order: Order) -> dict[str, Any]:
    if order.job.precision != "fp8":
        return {}
    sharded = order.strategy.sharding == "fsdp2"
    return {
        "fp8": {
            "enabled": True,
            "recipe_name": "tensorwise",
            "enable_fsdp_float8_all_gather": sharded,
            "precompute_float8_dynamic_scale_for_fsdp": sharded,
            "filter_fqns": ["lm_head"],
        }
    }


def command(order: Order) -> str:
    nodes = order.rig.n_nodes
    if nodes == 1:
        return f"automodel {FILE} --nproc-per-node {order.gpus_per_node}"
    where = f'--nnodes={nodes} --node_rank="$NODE_RANK" --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT"'
    return f"torchrun --nproc-per-node={order.gpus_per_node} {where} -m nemo_automodel.cli.app {FILE}"


def emit(order: Order) -> Recipe:
    extra = [name for name in hf.packages(order) if name in ("bitsandbytes", "torchao", "flash-attn")]
    install = tables.install(
        "nemo-automodel", *extra, *(["transformer-engine"] if order.strategy.attention == "te" else [])
    )
    return Recipe(
        target="nemo-automodel",
        files={
            FILE: as_yaml(settings(order), header(order)),
            commands.SCRIPT: commands.script(install, command(order)),
        },
        command=command(order),
        install=install,
        assumptions=assumed(order),
    )


# --------------------------------------------------------------------------------------------- reading


def read(text: str, beside: dict[str, str], where: str = FILE) -> Read:  # noqa: ARG001 - all readers are called alike
    """A recipe of NeMo AutoModel. Raises InvalidInput that names the key."""
    keys = Keys(parsed(text, where), where)
    job: dict[str, Any] = {"objective": "sft", "precision": "bf16-true", "method": "full"}
    strategy: dict[str, Any] = {"framework": "nemo"}
    left = _read_steps(keys.within("step_scheduler"), job, strategy)
    left += _read_model(keys.within("model"), job, strategy)
    left += _read_adapters(keys, job)
    left += _read_distributed(keys.within("distributed"), strategy)
    if keys.within("fp8").flag("enabled"):
        job["precision"] = "fp8"
    strategy["compile"] = bool(keys.within("compile").flag("enabled"))
    loss = keys.within("loss_fn").text("_target_") or PLAIN
    strategy["fused_ce"] = "LinearCrossEntropy" in loss
    packed = keys.within("packed_sequence").take("packed_sequence_size")
    rows = keys.within("dataset")
    job["packing"] = packed not in (None, 0)
    hf.put(job, seq_len=int(packed) if packed else rows.whole("seq_length", "seq_len"))
    optimizer = keys.within("optimizer")
    job["optimizer"] = tables.ours("nemo", "optimizer", optimizer.text("_target_"), optimizer.name("_target_"))
    keys.take("recipe", "seed", "rng", "dist_env", "dataloader", "checkpoint", "benchmark")
    return Read(target="nemo-automodel", job=job, strategy=strategy, unread=keys.rest() + left)


def _read_steps(keys: Keys, job: dict[str, Any], strategy: dict[str, Any]) -> list[str]:
    hf.put(job, global_batch=keys.whole("global_batch_size"), epochs=keys.number("num_epochs"))
    hf.put(strategy, micro_batch=keys.whole("local_batch_size"))
    keys.take("ckpt_every_steps", "val_every_steps", "max_steps")
    return [f"step_scheduler.{name}" for name in keys.rest()]


def _read_model(keys: Keys, job: dict[str, Any], strategy: dict[str, Any]) -> list[str]:
    hf.put(job, model=keys.text("pretrained_model_name_or_path"))
    kernel = keys.text("attn_implementation")
    if kernel is not None:
        strategy["attention"] = tables.ours("hf", "attention", kernel, keys.name("attn_implementation"))
    stored = keys.text("torch_dtype")
    if stored in ("float32", "fp32", "torch.float32"):
        job["precision"] = "bf16-mixed"
    keys.take("_target_", "use_liger_kernel", "trust_remote_code")
    return [f"model.{name}" for name in keys.rest()]


def _read_adapters(keys: Keys, job: dict[str, Any]) -> list[str]:
    peft, base = keys.within("peft"), keys.within("quantization")
    if not peft.data:
        return []
    four, eight = base.flag("load_in_4bit"), base.flag("load_in_8bit")
    job["method"] = hf.method(peft=True, bits=4 if four else 8 if eight else None, dora=bool(peft.flag("use_dora")))
    job["lora_rank"] = peft.whole("dim") or 8
    names = peft.take("target_modules")
    if peft.flag("match_all_linear"):
        job["lora_targets"] = "all-linear"
    elif names:
        bare = [str(name).rpartition(".")[2] for name in names]
        job["lora_targets"] = hf.our_targets(bare, peft.name("target_modules"), job.get("model"))
    peft.take("_target_", "alpha", "dropout", "use_triton")
    return [f"peft.{name}" for name in peft.rest()]


def _read_distributed(keys: Keys, strategy: dict[str, Any]) -> list[str]:
    kind = keys.text("strategy") or "fsdp2"
    if kind not in ("fsdp2", "ddp"):
        raise keys.wrong(kind, "fsdp2 or ddp", "strategy")
    strategy["sharding"] = kind
    recomputed = keys.take("activation_checkpointing")
    strategy["checkpointing"] = (
        "selective" if recomputed == "selective" else "full" if recomputed in (True, "full") else "none"
    )
    for degree in DEGREES:
        hf.put(strategy, **{degree: keys.whole(f"{degree}_size")})
    strategy["offload"] = "both" if keys.take("offload_policy") else "none"
    keys.take("dp_size", "dp_replicate_size", "sequence_parallel", "pipeline")
    return [f"distributed.{name}" for name in keys.rest()]
