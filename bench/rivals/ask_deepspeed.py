"""DeepSpeed's helpers: model states under ZeRO-2 and ZeRO-3, full training only, no activations."""

from answering import Answer, Question, need, serve
from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

GIB = 1024**3


def answer(question: Question) -> Answer:
    need(question["memory"], "no speed")
    need(question["method"] == "full", "full training only")
    need(question["tp"] * question["pp"] * question["cp"] == 1, "data parallel only")
    need(question["sharding"] in ("zero2", "zero3", "fsdp", "fsdp2"), "ZeRO-2 and ZeRO-3 only")
    per_node = question["n_gpus"] // question["n_nodes"]
    shape = {"num_gpus_per_node": per_node, "num_nodes": question["n_nodes"], "cpu_offload": False}
    if question["sharding"] == "zero2":
        _, gpu = estimate_zero2_model_states_mem_needs(question["total_params"], **shape)
    else:
        largest = question["vocab_size"] * question["hidden_size"]
        _, gpu, _ = estimate_zero3_model_states_mem_needs(
            question["total_params"], largest, cpu_offload_params=False, **shape
        )
    return {"allocated_gib": gpu / GIB, "device_gib": gpu / GIB}


serve(answer)
