"""train-in-silence: memory pooled over the GPUs and time by its own table of cards; the set-up that it charges
once per run is left out of the speed."""

import json
from importlib import resources

from answering import Answer, Question, need, serve
from tis.planner.estimator import ResourceEstimator
from tis.planner.models import Constraints, DataSpec, MarketOffer, ModelSpec, TrainingSpec, Workload
from tis.planner.optimizer import OptimizerEngine

SYSTEM_GIB = 2.0  # what the tool adds for the system
TOKENS = 10**9
CARDS = {
    "H200-SXM-141GB": "H200 SXM",
    "H100-SXM-80GB": "H100 SXM",
    "A100-SXM4-80GB": "A100 SXM 80GB",
    "A100-SXM4-40GB": "A100 SXM 40GB",
    "RTX-4090-24GB": "RTX 4090",
    "RTX-3090-24GB": "RTX 3090",
    "RTX-A5000-24GB": "RTX A5000",
    "RTX-6000-Ada-48GB": "RTX 6000 Ada",
    "L40S-48GB": "L40S",
    "T4-16GB": "T4",
    "A10G-24GB": "A10G",
    "B200-180GB": "B200",
}
SPECS = {row["name"]: row for row in json.loads(resources.files("tis.data").joinpath("gpu_specs.json").read_text())}


def workload(question: Question) -> Workload:
    moe = question["experts"] > 1
    return Workload(
        model=ModelSpec(
            name=question["model"],
            params=question["total_params"],
            num_layers=question["layers"],
            num_heads=question["heads"],
            num_kv_heads=question["kv_heads"],
            hidden_dim=question["hidden_size"],
            vocab_size=question["vocab_size"],
            num_experts=question["experts"] if moe else 0,
            active_experts=question["active_experts"] if moe else 0,
        ),
        training=TrainingSpec(
            method=question["method"],
            precision="fp16" if question["precision"].startswith("fp16") else "bf16",
            batch_size=question["micro_batch"],
            grad_accum=question["grad_accum"],
            seq_len=question["seq_len"],
        ),
        data=DataSpec(dataset_tokens=TOKENS),
    )


def answer(question: Question) -> Answer:
    need(question["method"] in ("full", "lora", "qlora"), "no such method")
    asked = workload(question)
    estimate = ResourceEstimator().estimate(asked)
    found: Answer = {}
    if question["memory"]:
        device = estimate.required_vram_gb / question["n_gpus"]
        found |= {"allocated_gib": device - SYSTEM_GIB / question["n_gpus"], "device_gib": device}
    if question["speed"] and question["gpu"] in CARDS and not question["precision"].startswith(("fp8", "mx", "nv")):
        card = SPECS[CARDS[question["gpu"]]]
        offer = MarketOffer(
            gpu=card["name"],
            gpu_count=question["n_gpus"],
            vram_gb=card["vram_gb"],
            price_per_hour=1,
            cpu=64,
            ram_gb=1000,
            gpu_flops_tflops=card["gpu_flops_tflops"],
            platform="runpod",
            region="any",
        )
        # What a run of one token takes is loading and set-up; the rest goes with the tokens.
        nothing = asked.model_copy(update={"data": DataSpec(dataset_tokens=1)})
        hours = OptimizerEngine._estimate_single_stage_time(estimate, offer, asked, Constraints())
        idle = OptimizerEngine._estimate_single_stage_time(
            ResourceEstimator().estimate(nothing), offer, nothing, Constraints()
        )
        found["tokens_per_s"] = TOKENS / ((hours - idle) * 3600)
    need(bool(found), "no such card or precision")
    return found


serve(answer)
