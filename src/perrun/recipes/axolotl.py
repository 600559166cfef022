"""axolotl: one YAML, and the launcher's command that says how many ranks there are.

Its parser lets unknown keys and unknown optimizers pass; what is written here is checked against fields/axolotl.json.
Source: axolotl 0.19.0, utils/schemas/*.py, integrations/liger/args.py, cli/main.py.
"""

from typing import Any

from perrun.recipes import commands, deepspeed, hf, tables
from perrun.recipes.keys import Keys, parsed
from perrun.recipes.order import ZERO, Order, as_yaml, assumed, header, lora_modules
from perrun.recipes.reading import Read, merged
from perrun.terms import Recipe

FILE = "axolotl.yaml"
LIGER = "axolotl.integrations.liger.LigerPlugin"
CUT = "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"
RL = ("dpo", "orpo", "kto", "grpo")


def refusals(order: Order) -> list[str]:
    """What its validation refuses."""
    job, strategy, found = order.job, order.strategy, list[str]()
    if strategy.fused_ce and strategy.tp > 1:
        found.append("a fused loss with tensor parallelism")
    if strategy.cp > 1:
        if strategy.attention != "flash2":
            found.append(f"context parallelism with {strategy.attention} attention (its ring needs flash2)")
        if job.packing and strategy.micro_batch > 1:
            found.append("context parallelism of packed rows with a micro batch above 1")
        if job.objective != "sft":
            found.append(f"context parallelism of {job.objective}")
    if job.objective == "grpo" and generations(order) < 2:
        found.append("grpo with fewer than two answers a prompt (micro batch x accumulation over GPUs)")
    if strategy.tp * strategy.cp > 1 and strategy.sharding not in ("fsdp2", "ddp"):
        found.append(f"tensor or context parallelism under {strategy.sharding}")
    return found


def settings(order: Order) -> dict[str, Any]:
    job, strategy = order.job, order.strategy
    checkpointed = strategy.checkpointing != "none"
    return {
        "base_model": job.model,
        **objective(order),
        **adapters(order),
        **data(order),
        "sequence_len": job.seq_len,
        "sample_packing": job.packing,
        "eval_sample_packing": False,
        "pad_to_sequence_len": job.packing,
        "micro_batch_size": strategy.micro_batch,
        "gradient_accumulation_steps": strategy.grad_accum,
        "num_epochs": job.epochs,
        **({"max_steps": order.steps} if order.steps else {}),
        "optimizer": hf.optimizer(order),
        "learning_rate": order.learning_rate,
        "lr_scheduler": "cosine",
        **precision(order),
        "gradient_checkpointing": checkpointed,
        **({"gradient_checkpointing_kwargs": {"use_reentrant": False}} if checkpointed else {}),
        "attn_implementation": tables.theirs("hf", "attention", strategy.attention),
        "torch_compile": strategy.compile,
        **kernels(order),
        **sharding(order),
        "output_dir": order.out,
        "logging_steps": 1,
        "save_steps": hf.SAVE_STEPS,
        "save_total_limit": 2,
        "auto_resume_from_checkpoints": True,
        "val_set_size": 0.0,
        "seed": 42,
    }


def generations(order: Order) -> int:
    """Answers a prompt in GRPO: what a GPU sees per step must be a multiple of them, and hold them for every rank."""
    share = order.strategy.micro_batch * order.strategy.grad_accum
    return max((n for n in (8, 4, 2) if share % n == 0 and n * order.rig.n_gpus <= share), default=1)


def objective(order: Order) -> dict[str, Any]:
    name = order.job.objective
    if name == "grpo":
        return {
            "rl": name,
            "trl": {"num_generations": generations(order), "max_completion_length": order.job.seq_len},
            "remove_unused_columns": False,
        }
    if name in RL:
        return {"rl": name, "remove_unused_columns": False}
    if name == "rm":
        return {"reward_model": True, "model_type": "AutoModelForSequenceClassification", "num_labels": 1}
    return {}


def adapters(order: Order) -> dict[str, Any]:
    job = order.job
    if not job.adapters:
        return {}
    bits = hf.bits(job.method)
    names = lora_modules(order)
    return {
        "adapter": "qlora" if bits == 4 else "lora",
        "load_in_4bit": bits == 4,
        "load_in_8bit": bits == 8,
        "lora_r": job.lora_rank,
        "lora_alpha": 2 * job.lora_rank,
        "lora_dropout": 0.0,
        **({"lora_target_modules": names} if names else {"lora_target_linear": True}),
        "peft_use_dora": job.method in ("dora", "qdora"),
        # switched on by themselves where they can be; the plan counts peft's own
        "lora_mlp_kernel": False,
        "lora_qkv_kernel": False,
        "lora_o_kernel": False,
    }


def data(order: Order) -> dict[str, Any]:
    ending = order.data.rpartition(".")[2]
    where = {"path": order.data, **({"ds_type": "json" if ending == "jsonl" else ending} if order.local_data else {})}
    name = order.job.objective
    if name == "pretrain":
        return {"datasets": [{**where, "type": "completion", "field": "text"}]}
    kinds = {
        "sft": {"type": "chat_template", "field_messages": "messages"},
        "dpo": {"type": "chat_template.default", "field_messages": "prompt", "split": "train"},
        "orpo": {"type": "chat_template.argilla", "split": "train"},
        "kto": {"type": "chatml.argilla_chat", "split": "train"},
        "rm": {"type": "bradley_terry.chat_template"},
        "grpo": {"type": "rewards.prompts", "split": "train"},
    }
    return {"chat_template": "tokenizer_default", "datasets": [{**where, **kinds[name]}]}


def precision(order: Order) -> dict[str, Any]:
    """Weights are stored as axolotl computes: bf16, or fp32 where both switches are off."""
    name = order.job.precision
    found: dict[str, Any] = {"bf16": name != "fp32", "fp16": False, "tf32": True}
    if name == "fp8":
        found |= {"fp8": True, "fp8_config": {"recipe": "tensorwise"}}
        found["fp8_enable_fsdp_float8_all_gather"] = order.strategy.sharding == "fsdp2"
    return found


def kernels(order: Order) -> dict[str, Any]:
    """Liger's kernels, which the stack's profile counts with; the fused loss is one of them."""
    return {
        "plugins": [LIGER],
        "liger_rope": True,
        "liger_rms_norm": order.strategy.tp == 1,  # its kernel does not know split weights
        "liger_glu_activation": True,
        "liger_fused_linear_cross_entropy": order.strategy.fused_ce,
    }


def sharding(order: Order) -> dict[str, Any]:
    strategy = order.strategy
    found: dict[str, Any] = {}
    if strategy.sharding in ZERO:
        found["deepspeed"] = deepspeed.FILE
    elif strategy.sharding in ("fsdp", "fsdp2"):
        new = strategy.sharding == "fsdp2"
        found["fsdp_version"] = 2 if new else 1
        found["fsdp_config"] = {
            "fsdp_version": 2 if new else 1,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "offload_params": strategy.offload == "both",
            "cpu_ram_efficient_loading": not order.kbit,
            "state_dict_type": "FULL_STATE_DICT",
            "reshard_after_forward": True,
            "activation_checkpointing": False,
            **({} if new else {"use_orig_params": True, "sync_module_states": True}),
        }
    if strategy.tp > 1:
        found["tensor_parallel_size"] = strategy.tp
    if strategy.cp > 1:
        found["context_parallel_size"] = strategy.cp
    return found


def command(order: Order) -> str:
    """torchrun takes the ranks that it is told; axolotl's own launcher takes every GPU that it sees."""
    nodes = order.rig.n_nodes
    more = f' --nnodes={nodes} --node_rank="$NODE_RANK" --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT"'
    return (
        f"axolotl train {FILE} --launcher torchrun -- --nproc_per_node={order.gpus_per_node}{more if nodes > 1 else ''}"
    )


def emit(order: Order) -> Recipe:
    extra = [name for name in hf.packages(order) if name in ("deepspeed", "flash-attn")]
    extra += ["ring-flash-attn"] if order.strategy.cp > 1 else []
    install = tables.install("axolotl", *extra)
    files = {FILE: as_yaml(settings(order), header(order))}
    if order.strategy.sharding in ZERO:
        files[deepspeed.FILE] = deepspeed.dumped(order)
    files[commands.SCRIPT] = commands.script(install, command(order))
    lines = assumed(order)
    if order.job.objective == "grpo":
        lines.append("axolotl's grpo needs reward functions (trl.reward_funcs) and, for speed, a vLLM server beside it")
    return Recipe(target="axolotl", files=files, command=command(order), install=install, assumptions=lines)


# --------------------------------------------------------------------------------------------- reading


def read(text: str, beside: dict[str, str], where: str = FILE) -> Read:
    """An axolotl YAML and the DeepSpeed configuration that it names. Raises InvalidInput that names the key."""
    keys = Keys(parsed(text, where), where)
    strategy: dict[str, Any] = {"framework": "axolotl"}
    job: dict[str, Any] = {}
    hf.put(job, model=keys.text("base_model"), epochs=keys.number("num_epochs"), seq_len=keys.whole("sequence_len"))
    job["packing"] = bool(keys.flag("sample_packing"))
    job["objective"] = _objective(keys)
    _read_adapters(keys, job)
    _read_numbers(keys, job, strategy)
    left = _read_sharding(keys, strategy)
    keys.take(*IGNORED)
    if keys.data.get("val_set_size") in (0, 0.0, None):
        keys.take("val_set_size")
    hf.put(
        strategy,
        tp=keys.whole("tensor_parallel_size"),
        cp=keys.whole("context_parallel_size", "sequence_parallel_degree"),
    )
    found = Read(target="axolotl", job=job, strategy=strategy, unread=keys.rest() + left)
    named = keys.text("deepspeed")
    return found if named is None else _with_deepspeed(found, named, beside)


IGNORED = (
    "datasets", "chat_template", "eval_sample_packing", "pad_to_sequence_len", "learning_rate", "lr_scheduler",
    "output_dir", "model_type", "num_labels", "lora_alpha", "lora_dropout", "lora_mlp_kernel", "lora_qkv_kernel",
    "lora_o_kernel", "gradient_checkpointing_kwargs", "plugins", "liger_rope", "liger_rms_norm",
    "liger_glu_activation", "tf32", "trl", "logging_steps", "save_steps", "saves_per_epoch", "save_total_limit",
    "auto_resume_from_checkpoints", "seed", "warmup_steps", "warmup_ratio", "weight_decay", "wandb_project",
    "dataset_prepared_path", "special_tokens", "remove_unused_columns", "fp8_config",
    "fp8_enable_fsdp_float8_all_gather", "deepspeed",
)  # fmt: skip


def _objective(keys: Keys) -> str:
    rl = keys.text("rl")
    if rl is not None:
        if rl not in RL:
            raise keys.wrong(rl, ", ".join(RL), "rl")
        return rl
    if keys.flag("reward_model"):
        return "rm"
    rows: list[dict[str, Any]] = keys.mappings("datasets")
    completion = any(row.get("type") == "completion" for row in rows)
    return "pretrain" if completion or "pretraining_dataset" in keys else "sft"


def _read_adapters(keys: Keys, job: dict[str, Any]) -> None:
    adapter = keys.text("adapter")
    four, eight = keys.flag("load_in_4bit"), keys.flag("load_in_8bit")
    if adapter not in (None, "lora", "qlora"):
        raise keys.wrong(adapter, "lora or qlora", "adapter")
    bits = 4 if four or adapter == "qlora" else 8 if eight else None
    job["method"] = hf.method(
        peft=adapter is not None, bits=bits if adapter else None, dora=bool(keys.flag("peft_use_dora"))
    )
    if adapter is None:
        return
    job["lora_rank"] = keys.whole("lora_r") or 8  # axolotl's own default, which peft sets
    targets = keys.take("lora_target_modules")
    if keys.flag("lora_target_linear"):
        job["lora_targets"] = "all-linear"
    elif targets is not None:
        job["lora_targets"] = hf.our_targets(targets, keys.name("lora_target_modules"), job.get("model"))


def _read_numbers(keys: Keys, job: dict[str, Any], strategy: dict[str, Any]) -> None:
    hf.put(strategy, micro_batch=keys.whole("micro_batch_size"), grad_accum=keys.whole("gradient_accumulation_steps"))
    spelled = keys.text("optimizer")
    if spelled is not None:
        job["optimizer"] = tables.ours("hf", "optimizer", spelled, keys.name("optimizer"))
    bf16 = keys.take("bf16", "bfloat16")
    half = bf16 in ("auto", "full") or bool(keys.flag("bf16", "bfloat16") if bf16 not in ("auto", "full") else True)
    fp16 = bool(keys.flag("fp16", "float16"))
    job["precision"] = "fp8" if keys.flag("fp8") else "bf16-true" if half else "fp16-mixed" if fp16 else "fp32"
    checkpointed = keys.take("gradient_checkpointing")
    if checkpointed in ("offload", "offload_disk", "unsloth"):
        strategy["checkpointing"] = "unsloth"  # inputs of layers kept in host memory
    else:
        strategy["checkpointing"] = "full" if keys.flag("gradient_checkpointing") else "none"
    kernel = keys.text("attn_implementation")
    legacy = {
        "flash_attention": "flash2",
        "sdp_attention": "sdpa",
        "eager_attention": "eager",
        "flex_attention": "sdpa",
    }
    on = [word for flag, word in legacy.items() if keys.flag(flag)]
    if kernel is not None:
        strategy["attention"] = tables.ours("hf", "attention", kernel, keys.name("attn_implementation"))
    elif on:
        strategy["attention"] = on[0]
    strategy["compile"] = bool(keys.flag("torch_compile") if keys.data.get("torch_compile") != "auto" else False)
    fused = [keys.flag("liger_fused_linear_cross_entropy"), keys.flag("cut_cross_entropy")]
    strategy["fused_ce"] = any(fused) or CUT in (keys.take("plugins") or [])


def _read_sharding(keys: Keys, strategy: dict[str, Any]) -> list[str]:
    config = keys.within("fsdp_config")
    version = keys.whole("fsdp_version") or config.whole("fsdp_version", "version")
    if not config.data and not keys.take("fsdp"):
        return []
    strategy["sharding"] = "fsdp2" if version == 2 else "fsdp"
    strategy["offload"] = "both" if config.flag("offload_params", "fsdp_offload_params") else "none"
    if config.flag("activation_checkpointing", "fsdp_activation_checkpointing"):
        strategy["checkpointing"] = "full"
    for name in ("auto_wrap_policy", "cpu_ram_efficient_loading", "state_dict_type", "reshard_after_forward"):
        config.take(name, f"fsdp_{name}")
    config.take("use_orig_params", "sync_module_states", "fsdp_version", "version")
    return [f"fsdp_config.{name}" for name in config.rest()]


def _with_deepspeed(found: Read, named: str, beside: dict[str, str]) -> Read:
    """With the stage and offload of the file that is named; a name of axolotl's own says the stage itself."""
    name = named.rpartition("/")[2]
    if name in beside:
        return merged(found, deepspeed.read(beside[name], {}, name))
    stage = next((digit for digit in "123" if f"zero{digit}" in name), None)
    if stage is None:
        return found.model_copy(update={"unread": [*found.unread, "deepspeed (the file is not beside it)"]})
    offloaded = "both" if "cpuoffload_all" in name else "params" if "cpuoffload_params" in name else "none"
    return merged(found, Read(target="deepspeed", strategy={"sharding": f"zero{stage}", "offload": offloaded}))
