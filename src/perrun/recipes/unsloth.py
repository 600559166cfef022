"""Unsloth: a script of its public calls for one GPU; importing it needs one.

Its attention and its fused loss are its own choice, so a plan must say flash2. Source: unslothai/unsloth README,
unsloth/models/loader.py and unsloth/models/llama.py (get_peft_model); trl's SFTConfig and DPOConfig.
"""

import ast
import json
from typing import Any

from perrun.errors import InvalidInput
from perrun.recipes import commands, hf, tables
from perrun.recipes.keys import Keys
from perrun.recipes.order import Order, assumed, header, lora_modules
from perrun.recipes.reading import Read
from perrun.terms import Recipe

FILE = "train.py"
# what its README adapts for all-linear
ALL_LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TEMPLATE = """\
# {header}
import unsloth  # first: it patches what is imported after it
from datasets import load_dataset
from trl import {trainer}Config, {trainer}Trainer
from unsloth import FastLanguageModel

model, tokenizer = FastLanguageModel.from_pretrained(
{loading}
)
{adapters}rows = load_dataset({data})
trainer = {trainer}Trainer(
    model=model,
    processing_class=tokenizer,
    train_dataset=rows,
    args={trainer}Config(
{arguments}
    ),
)
trainer.train()
trainer.save_model({out})
"""


def refusals(order: Order) -> list[str]:
    """What its calls cannot say."""
    found: list[str] = []
    if order.job.objective == "sft" and not order.strategy.fused_ce:
        found.append("a loss that is not fused")
    return found


def settings(order: Order) -> dict[str, dict[str, Any]]:
    """The keyword arguments of its three calls."""
    job, strategy = order.job, order.strategy
    kind = strategy.checkpointing
    arguments = hf.arguments(order)
    for name in ("gradient_checkpointing", "gradient_checkpointing_kwargs", "torch_compile"):
        arguments.pop(name, None)  # its own model does these
    if job.objective == "sft":
        arguments |= {"max_length": job.seq_len, "packing": job.packing}
    else:
        arguments |= {"max_length": job.seq_len, "beta": 0.1}
    found: dict[str, dict[str, Any]] = {
        "from_pretrained": {
            "model_name": job.model,
            "max_seq_length": job.seq_len,
            "dtype": "bfloat16",
            "load_in_4bit": hf.bits(job.method) == 4,
            "load_in_8bit": hf.bits(job.method) == 8,
            "full_finetuning": job.method == "full",
            "use_gradient_checkpointing": {"none": False, "full": True}.get(kind, "unsloth"),
        }
    }
    if job.adapters:
        found["get_peft_model"] = {
            "r": job.lora_rank,
            "lora_alpha": 2 * job.lora_rank,
            "lora_dropout": 0,
            "target_modules": lora_modules(order) or ALL_LINEAR,
            "bias": "none",
            "use_gradient_checkpointing": {"none": False, "full": True}.get(kind, "unsloth"),
            "random_state": 42,
        }
    found["Config"] = arguments
    return found


def emit(order: Order) -> Recipe:
    install = tables.install("unsloth", *(name for name in hf.packages(order) if name == "flash-attn"))
    command = f"CUDA_VISIBLE_DEVICES=0 python {FILE}"
    return Recipe(
        target="unsloth",
        files={FILE: script(order), commands.SCRIPT: commands.script(install, command)},
        command=command,
        install=install,
        assumptions=[*assumed(order), "Unsloth chooses its attention kernel itself: flash-attn where it is installed"],
    )


def script(order: Order) -> str:
    calls = settings(order)
    ending = order.data.rpartition(".")[2]
    kind = "json" if ending == "jsonl" else ending
    rows = (
        f'"{kind}", data_files={order.data!r}, split="train"' if order.local_data else f'{order.data!r}, split="train"'
    )
    adapters = (
        f"model = FastLanguageModel.get_peft_model(\n    model,\n{_lines(calls['get_peft_model'], 4)}\n)\n"
        if order.job.adapters
        else ""
    )
    return TEMPLATE.format(
        header=header(order),
        trainer="SFT" if order.job.objective == "sft" else "DPO",
        loading=_lines(calls["from_pretrained"], 4),
        adapters=adapters,
        data=rows,
        arguments=_lines(calls["Config"], 8),
        out=json.dumps(order.out),
    )


def _lines(arguments: dict[str, Any], indent: int) -> str:
    def literal(value: Any) -> str:
        return json.dumps(value) if isinstance(value, str) else repr(value).replace("'", '"')

    return "\n".join(f"{' ' * indent}{name}={literal(value)}," for name, value in arguments.items())


# --------------------------------------------------------------------------------------------- reading

CALLS = ("from_pretrained", "get_peft_model", "SFTConfig", "DPOConfig", "TrainingArguments")


def read(text: str, beside: dict[str, str], where: str = FILE) -> Read:  # noqa: ARG001 - all readers are called alike
    """The keyword arguments of Unsloth's calls in a script that is read, never run. Raises InvalidInput."""
    try:
        tree = ast.parse(text)
    except SyntaxError as why:
        raise InvalidInput(f"{where} line {why.lineno}: {why.msg}", expected="a Python script") from None
    found: dict[str, Any] = {}
    seen: set[str] = set()
    hidden: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node) in CALLS:
            seen.add(_name(node))
            for keyword in node.keywords:
                _take(keyword, found, hidden)
    if "from_pretrained" not in seen:
        raise InvalidInput(f"{where} never calls FastLanguageModel.from_pretrained", expected="a script for Unsloth")
    return _understood(found, seen, hidden, where)


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _take(keyword: ast.keyword, found: dict[str, Any], hidden: list[str]) -> None:
    """A literal argument; any other is what only running the script would tell."""
    name = keyword.arg or "**"
    try:
        found[name] = ast.literal_eval(keyword.value)
    except ValueError:
        if name not in ("model", "tokenizer", "train_dataset", "args", "processing_class"):
            hidden.append(f"{name} (not a literal)")


def _understood(found: dict[str, Any], seen: set[str], hidden: list[str], where: str) -> Read:
    keys = Keys(found, where)
    gradient = keys.take("use_gradient_checkpointing")
    job, strategy = hf.read_arguments(keys)
    strategy |= {"framework": "unsloth", "sharding": "none", "attention": "flash2"}
    job["objective"] = "dpo" if "DPOConfig" in seen else "sft"
    strategy["fused_ce"] = job["objective"] == "sft"
    strategy["checkpointing"] = "unsloth" if gradient == "unsloth" else "full" if gradient else "none"
    hf.put(job, model=keys.text("model_name"), seq_len=keys.whole("max_seq_length", "max_length"))
    job["packing"] = bool(keys.flag("packing"))
    four = keys.data.get("load_in_4bit", True)  # from_pretrained's own default
    keys.take("load_in_4bit")
    eight, full = keys.flag("load_in_8bit"), keys.flag("full_finetuning")
    bits = None if full else 8 if eight else 4 if four else None
    job["method"] = hf.method(peft="get_peft_model" in seen, bits=bits, dora=False)
    rank, targets = keys.whole("r"), keys.take("target_modules")
    if "get_peft_model" in seen:
        job["lora_rank"] = rank or 16
        job["lora_targets"] = (
            "all-linear"
            if targets in (None, ALL_LINEAR)
            else hf.our_targets(targets, "target_modules", job.get("model"))
        )
    keys.take(
        "lora_alpha", "lora_dropout", "bias", "random_state", "dtype", "bf16", "fp16", "data_files", "split", "beta"
    )
    job["precision"] = "bf16-true"
    return Read(target="unsloth", job=job, strategy=strategy, n_gpus=1, n_nodes=1, unread=keys.rest() + hidden)
