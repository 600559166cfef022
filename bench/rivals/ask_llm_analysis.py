"""llm-analysis: memory and time of full training; its documentation suggests an efficiency of 0.5."""

from answering import Answer, Question, need, serve
from llm_analysis.analysis import ActivationRecomputation, DSZeRO, LLMAnalysis
from llm_analysis.config import (
    DtypeConfig,
    ModelConfig,
    ParallelismConfig,
    get_gpu_config_by_name,
)

GIB = 1024**3
EFFICIENCY = 0.5
CARDS = {
    "A100-SXM4-40GB": "a100-sxm-40gb",
    "A100-SXM4-80GB": "a100-sxm-80gb",
    "A100-PCIe-80GB": "a100-pcie-80gb",
    "H100-SXM-80GB": "h100-sxm-80gb",
    "H100-PCIe-80GB": "h100-pcie-80gb",
    "A10G-24GB": "a10g-pcie-24gb",
}
ZERO = {"none": 0, "ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3, "fsdp2": 3}


def answer(question: Question) -> Answer:
    need(question["method"] == "full", "full training only")
    need(question["gpu"] in CARDS, "no such card")
    need(not question["precision"].startswith(("fp8", "mx", "nv")), "no such precision")
    need(question["cp"] == 1, "no context parallelism")
    model = ModelConfig(
        name=question["model"],
        num_layers=question["layers"],
        n_head=question["heads"],
        hidden_dim=question["hidden_size"],
        vocab_size=question["vocab_size"],
        max_seq_len=question["seq_len"],
        num_key_value_heads=question["kv_heads"],
        ffn_embed_dim=question["intermediate_size"],
        expansion_ratio=question["intermediate_size"] / question["hidden_size"],
        moe_num_experts=question["experts"],
        moe_top_k=question["active_experts"],
    )
    ranks = question["tp"] * question["pp"]
    copies = question["n_gpus"] // ranks
    analysis = LLMAnalysis(
        model,
        get_gpu_config_by_name(CARDS[question["gpu"]]),
        DtypeConfig(),
        ParallelismConfig(tp_size=question["tp"], pp_size=question["pp"], dp_size=copies, sp_size=question["tp"]),
        flops_efficiency=EFFICIENCY,
    )
    tokens = question["micro_batch"] * question["grad_accum"] * copies * question["seq_len"]
    summary = analysis.training(
        batch_size_per_gpu=question["micro_batch"],
        gradient_accumulation_steps=question["grad_accum"],
        seq_len=question["seq_len"],
        total_num_tokens=tokens,
        activation_recomputation=ActivationRecomputation.FULL
        if question["checkpointing"] == "full"
        else ActivationRecomputation.NONE,
        ds_zero=DSZeRO(ZERO[question["sharding"]]),
        master_weights_dtype_bytes=0 if question["precision"] == "bf16-true" else 4,
        flash_attn=question["attention"] != "eager",
        mlp_gated_linear_units=question["gated"],
    )
    found: Answer = {}
    if question["memory"]:
        total = summary["(weight+op_state+grad+act)_memory_per_gpu"] / GIB
        found |= {"allocated_gib": total, "device_gib": total}
    if question["speed"]:
        found["tokens_per_s"] = tokens / summary["total_training_latency"]
    return found


serve(answer)
