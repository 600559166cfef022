"""LLaMA-Factory: one YAML for `llamafactory-cli train`, a data set description, and the files that share the work.

Full tuning under `bf16` keeps the trained weights in fp32; only `pure_bf16` trains in bf16, and not under ZeRO-3. Its
parser lets `flash_attn: fa3` pass, and the model's loading then fails; a model that liger-kernel has no kernels for
trains on with a plain loss. Source: llamafactory 0.9.5, hparams/*.py, model/adapter.py, model/model_utils/*.py.
"""

import json
from typing import Any

from perrun.errors import InvalidInput
from perrun.recipes import accelerate, commands, deepspeed, hf, tables
from perrun.recipes.keys import Keys, parsed
from perrun.recipes.order import FP8, ZERO, Order, as_yaml, assumed, header, lora_modules
from perrun.recipes.reading import Read, merged
from perrun.terms import Recipe

FILE = "llamafactory.yaml"
DATASETS = "dataset_info.json"
# model/model_utils/liger_kernel.py, the families that it patches
LIGER = frozenset(
    [
        "gemma",
        "gemma2",
        "gemma3",
        "gemma3_text",
        "glm",
        "glm4",
        "glm4v",
        "granite",
        "llama",
        "llava",
        "mistral",
        "mixtral",
        "mllama",
        "olmo2",
        "paligemma",
        "phi3",
        "qwen2",
        "qwen2_vl",
        "qwen2_5_vl",
        "qwen3",
        "qwen3_moe",
        "qwen3_next",
        "qwen3_5",
        "gpt_oss",
    ]
)
# data/template.py; a chat template that the tokenizer brings itself is taken for any other family
TEMPLATES = {
    "llama": "llama3",
    "qwen2": "qwen",
    "qwen3": "qwen3",
    "mistral": "mistral",
    "gemma2": "gemma",
    "phi3": "phi",
}


def refusals(order: Order) -> list[str]:
    """What its parser or its loading refuses."""
    job, strategy, found = order.job, order.strategy, list[str]()
    if job.precision == "bf16-mixed" and job.adapters:
        found.append("bf16-mixed on a frozen base, which it loads in bf16")
    if job.precision in ("fp16-mixed", "fp32") and job.adapters:
        found.append(f"{job.precision} on a frozen base, which it loads in 16 bits")
    if strategy.fused_ce and order.model.model_type not in LIGER:
        found.append(f"a fused loss for {order.model.model_type} (no liger kernels)")
    return found


def settings(order: Order) -> dict[str, Any]:
    job, strategy = order.job, order.strategy
    stage = "dpo" if job.objective == "orpo" else tables.theirs("llamafactory", "objective", job.objective)
    return {
        "model_name_or_path": job.model,
        "stage": stage,
        "do_train": True,
        **({"pref_loss": "orpo" if job.objective == "orpo" else "sigmoid", "pref_beta": 0.1} if stage == "dpo" else {}),
        "finetuning_type": "lora" if job.adapters else "full",
        **adapters(order),
        "dataset": "rows",
        "dataset_dir": ".",
        "template": TEMPLATES.get(order.model.model_type, "default"),
        "cutoff_len": job.seq_len,
        **packing(order),
        "flash_attn": tables.theirs("llamafactory", "attention", strategy.attention),
        "enable_liger_kernel": strategy.fused_ce,
        **arguments(order),
        **precision(order),
        **({"deepspeed": deepspeed.FILE} if strategy.sharding in ZERO else {}),
    }


def adapters(order: Order) -> dict[str, Any]:
    job = order.job
    if not job.adapters:
        return {}
    bits = hf.bits(job.method)
    return {
        "lora_rank": job.lora_rank,
        "lora_alpha": 2 * job.lora_rank,
        "lora_dropout": 0.0,
        "lora_target": ",".join(lora_modules(order)) or "all",
        "use_dora": job.method in ("dora", "qdora"),
        **({"quantization_bit": bits, "quantization_method": "bnb", "double_quantization": True} if bits else {}),
    }


def packing(order: Order) -> dict[str, Any]:
    """Rows joined to cutoff_len; neat_packing also keeps them from seeing each other, in supervised tuning alone.

    The stack's profile counts without it.
    """
    return {"packing": order.job.packing, "neat_packing": False}


def arguments(order: Order) -> dict[str, Any]:
    """The Trainer's, less those that LLaMA-Factory says by its own names."""
    found = hf.arguments(order)
    for name in ("bf16", "fp16", "gradient_checkpointing", "gradient_checkpointing_kwargs"):
        found.pop(name, None)
    kind = order.strategy.checkpointing
    return {
        **found,
        "overwrite_output_dir": True,
        "disable_gradient_checkpointing": kind == "none",
        "use_unsloth_gc": kind == "unsloth",
        "use_reentrant_gc": False,
    }


def precision(order: Order) -> dict[str, Any]:
    name = order.job.precision
    # under ZeRO weights are bf16 anyway, and pure_bf16 is refused under stage 3
    pure = name == "bf16-true" and not order.job.adapters and order.strategy.sharding not in ZERO
    found: dict[str, Any] = {
        "bf16": name in ("bf16-true", "bf16-mixed", *FP8) and not pure,
        "fp16": name == "fp16-mixed",
        "pure_bf16": pure,
    }
    if name == "fp8":
        found |= {"fp8": True, "fp8_backend": "torchao"}
        found["fp8_enable_fsdp_float8_all_gather"] = order.strategy.sharding == "fsdp2"
    return found


def datasets(order: Order) -> str:
    """dataset_info.json: where the rows lie and which columns they have."""
    where = {"file_name": order.data} if order.local_data else {"hf_hub_url": order.data}
    name = order.job.objective
    if name == "pretrain":
        row: dict[str, Any] = {**where, "columns": {"prompt": "text"}}
    elif name in ("dpo", "orpo", "rm"):
        columns = {"messages": "prompt", "chosen": "chosen", "rejected": "rejected"}
        row = {**where, "formatting": "sharegpt", "ranking": True, "columns": columns, "tags": TAGS}
    elif name == "kto":
        row = {**where, "formatting": "sharegpt", "columns": {"messages": "messages", "kto_tag": "label"}, "tags": TAGS}
    else:
        row = {**where, "formatting": "sharegpt", "columns": {"messages": "messages"}, "tags": TAGS}
    return json.dumps({"rows": row}, indent=2) + "\n"


TAGS = {
    "role_tag": "role",
    "content_tag": "content",
    "user_tag": "user",
    "assistant_tag": "assistant",
    "system_tag": "system",
}


def command(order: Order) -> str:
    """FSDP needs accelerate's launcher; otherwise torchrun, started by LLaMA-Factory itself on the GPUs it is told."""
    if order.strategy.sharding in ("fsdp", "fsdp2"):
        launch = f"accelerate launch --config_file {accelerate.FILE}{accelerate.flags(order)}"
        return f"{launch} -m llamafactory.launcher {FILE}"
    nodes = order.rig.n_nodes
    torchrun = "FORCE_TORCHRUN=1 " if order.rig.n_gpus > 1 or order.strategy.sharding in ZERO else ""
    count = f"NPROC_PER_NODE={order.gpus_per_node} " if torchrun else "CUDA_VISIBLE_DEVICES=0 "
    return f"{torchrun}{count}{f'NNODES={nodes} ' if nodes > 1 else ''}llamafactory-cli train {FILE}"


def emit(order: Order) -> Recipe:
    extra = hf.packages(order) + (["liger-kernel"] if order.strategy.fused_ce else [])
    install = tables.install("llamafactory", *extra)
    files = {FILE: as_yaml(settings(order), header(order)), DATASETS: datasets(order)}
    if order.strategy.sharding in ZERO:
        files[deepspeed.FILE] = deepspeed.dumped(order)
    elif order.strategy.sharding in ("fsdp", "fsdp2"):
        files[accelerate.FILE] = as_yaml(accelerate.config(order), header(order))
    files[commands.SCRIPT] = commands.script(install, command(order))
    lines = assumed(order)
    if order.model.model_type not in TEMPLATES:
        lines.append(
            f"template default: LLaMA-Factory names none for {order.model.model_type}; any name passes its parser"
        )
    return Recipe(target="llamafactory", files=files, command=command(order), install=install, assumptions=lines)


# --------------------------------------------------------------------------------------------- reading


def read(text: str, beside: dict[str, str], where: str = FILE) -> Read:
    """A LLaMA-Factory YAML and the files that it is launched with. Raises InvalidInput that names the key."""
    keys = Keys(parsed(text, where), where)
    checkpointed = not keys.flag("disable_gradient_checkpointing")
    offloaded = bool(keys.flag("use_unsloth_gc"))
    job, strategy = hf.read_arguments(keys)
    strategy["framework"] = "llamafactory"
    strategy["checkpointing"] = "none" if not checkpointed else "unsloth" if offloaded else "full"
    strategy["fused_ce"] = bool(keys.flag("enable_liger_kernel"))
    hf.put(job, model=keys.text("model_name_or_path"), seq_len=keys.whole("cutoff_len"))
    job["objective"] = _objective(keys)
    packed, neat = keys.flag("packing"), keys.flag("neat_packing")
    job["packing"] = bool(neat) or bool(packed if packed is not None else job["objective"] == "pretrain")
    _read_method(keys, job)
    kernel = keys.text("flash_attn")
    if kernel is not None:
        strategy["attention"] = tables.ours("llamafactory", "attention", kernel, keys.name("flash_attn"))
    keys.take(*IGNORED)
    named = keys.text("deepspeed")
    found = Read(target="llamafactory", job=job, strategy=strategy, unread=keys.rest())
    return _launched(found, named, beside)


IGNORED = (
    "do_train", "pref_beta", "lora_alpha", "lora_dropout", "quantization_method", "double_quantization", "dataset",
    "dataset_dir", "template", "use_reentrant_gc", "fp8_backend", "fp8_enable_fsdp_float8_all_gather",
)  # fmt: skip


def _objective(keys: Keys) -> str:
    stage = keys.text("stage") or "sft"
    loss = keys.text("pref_loss") or "sigmoid"
    if stage == "dpo" and loss == "orpo":
        return "orpo"
    return tables.ours("llamafactory", "objective", stage, keys.name("stage"))


def _read_method(keys: Keys, job: dict[str, Any]) -> None:
    kind = keys.text("finetuning_type") or "lora"
    if kind not in ("lora", "full"):
        raise keys.wrong(kind, "lora or full: perrun has no law for the others", "finetuning_type")
    bits = keys.take("quantization_bit")
    if bits is not None and str(bits) not in ("4", "8"):
        raise keys.wrong(bits, "4 or 8", "quantization_bit")
    if bits is not None and kind == "full":
        raise InvalidInput(
            f"{keys.name('quantization_bit')} with finetuning_type full", expected="finetuning_type: lora"
        )
    peft = kind == "lora"
    job["method"] = hf.method(peft=peft, bits=int(bits) if bits else None, dora=bool(keys.flag("use_dora")))
    rank, targets = keys.whole("lora_rank"), keys.take("lora_target")
    if peft:
        job["lora_rank"] = rank or 8
        job["lora_targets"] = hf.our_targets(targets or "all", keys.name("lora_target"), job.get("model"))
    bf16, fp16, pure, fp8 = (keys.flag(name) for name in ("bf16", "fp16", "pure_bf16", "fp8"))
    stored = "bf16" if pure or (bf16 and peft) else None
    job["precision"] = "fp8" if fp8 else hf.precision(stored, bf16, fp16)


def _launched(found: Read, named: str | None, beside: dict[str, str]) -> Read:
    if named is not None:
        name = named.rpartition("/")[2]
        if name in beside:
            return merged(found, deepspeed.read(beside[name], {}, name))
        return found.model_copy(update={"unread": [*found.unread, "deepspeed (the file is not beside it)"]})
    if accelerate.FILE in beside:
        return merged(found, accelerate.read(beside[accelerate.FILE], beside))
    return found
