"""accelerate estimate-memory: four times the bf16 weights for a full step with Adam; nothing for adapters.

Its command needs the hub, so the rule is applied to the parameters that the model has (the command itself counts a
model without its head).
"""

from answering import Answer, Question, need, serve

BF16_BYTES = 2
COPIES = 4  # accelerate/commands/estimate.py: "Training using Adam" is the model's size times four
GIB = 1024**3


def answer(question: Question) -> Answer:
    need(question["memory"], "no speed")
    need(question["n_gpus"] == 1, "one GPU only")
    need(question["method"] == "full", "full training only")
    total = question["total_params"] * BF16_BYTES * COPIES / GIB
    return {"allocated_gib": total, "device_gib": total}


serve(answer)
