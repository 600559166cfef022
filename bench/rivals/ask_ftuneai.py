"""ftuneai: memory and time, sharded or not; its data base of models is extended by the question's own."""

from answering import FLASH, Answer, Question, need, serve, targets
from ftuneai import loader
from ftuneai.core.models import ModelSpec
from ftuneai.estimator import Estimator

GPUS = {
    "H200-SXM-141GB": "H200-141GB",
    "H100-SXM-80GB": "H100-80GB",
    "A100-SXM4-80GB": "A100-80GB",
    "A100-SXM4-40GB": "A100-40GB",
    "L4-24GB": "L4-24GB",
    "RTX-4090-24GB": "RTX-4090-24GB",
    "RTX-3090-24GB": "RTX-3090-24GB",
    "T4-16GB": "T4-16GB",
    "A10G-24GB": "A10G-24GB",
}
SHARDING = {"none": "none", "ddp": "none", "zero1": "zero_1", "zero2": "zero_2", "zero3": "zero_3"}
TARGETS = {"attn-qv": "attention", "attn": "attention_all", "all-linear": "all_linear"}
OPTIMIZERS = {"adamw": "adamw", "adamw-8bit": "adam_8bit", "paged-adamw-8bit": "adam_8bit", "sgd": "sgd"}
SAMPLES = 10**7  # hours are rounded to two digits: ask for many


def estimator(question: Question) -> Estimator:
    name = question["model"]
    loader.load_models()[name] = ModelSpec(
        name=name,
        parameters=question["total_params"],
        hidden_size=question["hidden_size"],
        num_layers=question["layers"],
        num_attention_heads=question["heads"],
        num_kv_heads=question["kv_heads"],
        intermediate_size=question["intermediate_size"],
        vocab_size=question["vocab_size"],
        max_seq_length=max(question["seq_len"], 4096),
        is_moe=question["experts"] > 1,
        num_experts=question["experts"] if question["experts"] > 1 else None,
        num_active_experts=question["active_experts"] if question["experts"] > 1 else None,
    )
    return Estimator(
        model=name,
        method={"lora-int8": "lora"}.get(question["method"], question["method"]),
        quantization={"qlora": "4bit", "lora-int8": "8bit"}.get(question["method"], "none"),
        batch_size=question["micro_batch"],
        seq_length=question["seq_len"],
        gradient_checkpointing=question["checkpointing"] != "none",
        optimizer=OPTIMIZERS[question["optimizer"]],
        lora_rank=question["lora_rank"],
        lora_target=TARGETS[targets(question)],
        flash_attention=question["attention"] in FLASH,
        sharding=SHARDING.get(question["sharding"], "fsdp"),
        num_gpus=question["n_gpus"],
    )


def answer(question: Question) -> Answer:
    need(question["method"] in ("full", "lora", "qlora", "lora-int8"), "no such method")
    need(question["optimizer"] in OPTIMIZERS, "no such optimizer")
    need(question["tp"] * question["pp"] * question["cp"] == 1, "no tensor, pipeline or context parallelism")
    found: Answer = {}
    asked = estimator(question)
    if question["memory"]:
        memory = asked.estimate_memory()
        found |= {"allocated_gib": memory.total_gb - memory.overhead_gb, "device_gib": memory.total_gb}
    if question["speed"] and question["gpu"] in GPUS and not question["precision"].startswith(("fp8", "mx", "nv")):
        time = asked.estimate_time(
            gpu=GPUS[question["gpu"]],
            dataset_size=SAMPLES,
            epochs=1,
            num_gpus=question["n_gpus"],
            avg_seq_length=max(1, round(question["mean_len"])),
        )
        found["tokens_per_s"] = time.total_tokens / (time.total_hours * 3600)
    need(bool(found), "no such card or precision")
    return found


serve(answer)
