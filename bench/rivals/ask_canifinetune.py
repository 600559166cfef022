"""canifinetune: memory on one GPU; its safety margin is left out, its CUDA overhead counts on the device only."""

from answering import Answer, Question, need, serve, targets
from canifinetune.estimator.memory import EstimateRequest, estimate

OPTIMIZERS = {"adamw": "adamw", "adamw-8bit": "adamw_8bit", "paged-adamw-8bit": "paged_adamw_8bit", "sgd": "sgd"}
ATTENTION = {"eager": "eager", "sdpa": "sdpa"}


def answer(question: Question) -> Answer:
    need(question["memory"], "no speed")
    need(question["n_gpus"] == 1, "one GPU only")
    need(question["method"] in ("full", "lora", "qlora"), "no such method")
    need(question["optimizer"] in OPTIMIZERS, "no such optimizer")
    spec = {
        "family": "llama",
        "hidden_size": question["hidden_size"],
        "num_hidden_layers": question["layers"],
        "num_attention_heads": question["heads"],
        "num_key_value_heads": question["kv_heads"],
        "intermediate_size": question["intermediate_size"],
        "vocab_size": question["vocab_size"],
        "tie_word_embeddings": question["tied"],
        "total_params": question["total_params"],
        "num_local_experts": question["experts"],
        "num_experts_per_tok": question["active_experts"],
    }
    request = EstimateRequest(
        model_id=question["model"],
        gpu_vram_gb=question["gpu_memory_gib"],
        method=question["method"],
        seq_len=question["seq_len"],
        micro_batch_size=question["micro_batch"],
        base_dtype="fp16" if question["precision"].startswith("fp16") else "bf16",
        lora_rank=question["lora_rank"],
        lora_target_scope="all_linear" if targets(question) == "all-linear" else "attention",
        optimizer=OPTIMIZERS[question["optimizer"]],
        gradient_checkpointing=question["checkpointing"] != "none",
        attention_implementation=ATTENTION.get(question["attention"], "flash_attention_2"),
        loss_backend="liger" if question["fused_ce"] else "stock",
        override=spec,
        use_network=False,
    )
    memory = estimate(request).memory
    device = memory.total_estimated_gb - memory.safety_margin_gb
    return {"allocated_gib": device - memory.cuda_overhead_gb, "device_gib": device}


serve(answer)
