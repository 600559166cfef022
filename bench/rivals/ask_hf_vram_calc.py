"""hf-vram-calc: one figure for full training and one for LoRA, on one GPU."""

from answering import Answer, Question, need, serve
from hf_vram_calc.calculator import VRAMCalculator
from hf_vram_calc.config import ConfigManager

CALCULATOR = VRAMCalculator(ConfigManager())


def answer(question: Question) -> Answer:
    need(question["memory"], "no speed")
    need(question["n_gpus"] == 1, "one GPU only")
    need(question["method"] in ("full", "lora", "qlora", "lora-int8"), "no such method")
    dtype = {"qlora": "int4", "lora-int8": "int8"}.get(question["method"], "bf16")
    weights = CALCULATOR.calculate_model_memory(question["total_params"], dtype)
    if question["method"] == "full":
        need_gib = CALCULATOR.calculate_training_memory(weights)
    else:
        need_gib = CALCULATOR.calculate_lora_memory(weights, question["total_params"], question["lora_rank"])
    return {"allocated_gib": need_gib, "device_gib": need_gib}


serve(answer)
