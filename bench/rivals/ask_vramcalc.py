"""vramcalc: memory on one GPU, llama-like models, LoRA on q, k, v and o or full, no 4-bit."""

from answering import Answer, Question, config, need, serve
from vramcalc import estimate

GIB = 1024**3


def answer(question: Question) -> Answer:
    need(question["memory"], "no speed")
    need(question["n_gpus"] == 1, "one GPU only")
    need(question["method"] in ("full", "lora"), "no quantised base")
    need(question["optimizer"] in ("adamw", "sgd"), "no such optimizer")
    found = estimate(
        config(question),
        mode="train",
        dtype="fp16" if question["precision"].startswith("fp16") else "bf16",
        batch=question["micro_batch"],
        seq_len=question["seq_len"],
        lora_rank=question["lora_rank"] if question["method"] == "lora" else None,
        grad_checkpoint=question["checkpointing"] != "none",
        optimizer=question["optimizer"],
        precision="pure" if question["precision"].endswith("-true") else "amp",
        attn_impl={"eager": "eager", "sdpa": "sdpa"}.get(question["attention"], "flash"),
    )
    return {"allocated_gib": found.total / GIB, "device_gib": (found.total + found.overhead) / GIB}


serve(answer)
