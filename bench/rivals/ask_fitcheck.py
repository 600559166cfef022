"""fitcheck-llm: memory on one GPU, dense models, LoRA or full."""

from answering import FLASH, Answer, Question, need, serve, targets
from fitcheck import ModelConfig, TrainingConfig, estimate, get_gpu

TARGETS = {
    "attn-qv": ["q_proj", "v_proj"],
    "attn": ["q_proj", "k_proj", "v_proj", "o_proj"],
    "all-linear": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
}
OPTIMIZERS = {"adamw": "adamw", "adamw-8bit": "adam8bit", "paged-adamw-8bit": "adam8bit", "sgd": "sgd"}
MIB_PER_GIB = 1024


def answer(question: Question) -> Answer:
    need(question["memory"], "no speed")
    need(question["n_gpus"] == 1, "one GPU only")
    need(question["experts"] == 1, "no mixture of experts")
    need(question["optimizer"] in OPTIMIZERS, "no such optimizer")
    model = ModelConfig(
        name=question["model"],
        num_params=question["total_params"],
        hidden_size=question["hidden_size"],
        num_layers=question["layers"],
        num_attention_heads=question["heads"],
        num_kv_heads=question["kv_heads"],
        intermediate_size=question["intermediate_size"],
        vocab_size=question["vocab_size"],
        head_dim=question["head_dim"],
        tie_word_embeddings=question["tied"],
    )
    lora = question["method"] != "full"
    training = TrainingConfig(
        precision="fp16" if question["precision"].startswith("fp16") else "bf16",
        quantization={"qlora": "nf4", "lora-int8": "int8"}.get(question["method"], "none"),
        double_quant=question["method"] == "qlora",
        optimizer=OPTIMIZERS[question["optimizer"]],
        optimizer_dtype="bf16" if question["precision"] == "bf16-true" and not lora else "fp32",
        batch_size=question["micro_batch"],
        seq_len=question["seq_len"],
        lora_rank=question["lora_rank"] if lora else None,
        lora_targets=TARGETS[targets(question)],
        grad_checkpoint=question["checkpointing"] != "none",
        flash_attn=question["attention"] in FLASH,
    )
    report = estimate(model, training, get_gpu(vram_mib=int(question["gpu_memory_gib"] * MIB_PER_GIB)))
    return {
        "allocated_gib": (report.total_mib - report.overhead_mib) / MIB_PER_GIB,
        "device_gib": report.total_mib / MIB_PER_GIB,
    }


serve(answer)
