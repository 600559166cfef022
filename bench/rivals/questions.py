"""The measured rows as plain questions that any calculator can be asked: one JSON object a line, on stdout.

Only rows that are scored are asked: memory of a known kind, or tokens/s of exactly known length.
Run: python bench/rivals/questions.py runs/*.csv > questions.jsonl
"""

import json
import sys
from typing import Any

from perrun.runs import Settings
from perrun.validation import questions

KNOWN_KINDS = ("allocated", "active", "reserved", "nvidia-smi")


def plain(asked: Settings) -> dict[str, Any] | None:
    """The question without any of our nouns; None when the row is not scored or its model is no plain decoder."""
    measured, setting, shape = asked.measured, asked.setting, asked.model.shape
    memory = measured.outcome == "ok" and measured.mem_kind in KNOWN_KINDS and "memory" not in asked.unscored
    speed = measured.tokens_per_s is not None and "speed" not in asked.unscored
    attention = [layer for layer in shape.layers if layer.mixer == "attention"]
    if not (memory or speed) or not attention:
        return None
    layer = attention[0]
    experts = max((linear.copies for layer in shape.layers for linear in layer.linears), default=1)
    active = max((linear.active for layer in shape.layers for linear in layer.linears), default=1)
    return {
        "source": asked.run.source,
        "line": asked.run.line,
        "memory": memory,
        "speed": speed,
        "model": asked.model.id,
        "model_type": asked.model.model_type,
        "hidden_size": shape.hidden_size,
        "layers": shape.n_layers,
        "heads": layer.heads,
        "kv_heads": layer.kv_heads,
        "head_dim": layer.head_dim,
        "intermediate_size": layer.intermediate // active if layer.mlp == "moe" else layer.intermediate,
        "gated": layer.mlp != "plain",
        "vocab_size": shape.vocab_size,
        "tied": shape.tied,
        "experts": experts,
        "active_experts": active,
        "total_params": shape.total_params,
        "active_params": shape.active_params,
        "method": setting.method,
        "precision": setting.precision,
        "optimizer": setting.optimizer,
        "lora_rank": setting.lora_rank,
        "lora_targets": setting.lora_targets,
        "seq_len": int(setting.seq_len),
        "mean_len": float(setting.mean_len),
        "micro_batch": setting.micro_batch,
        "grad_accum": setting.grad_accum,
        "checkpointing": setting.checkpointing,
        "attention": setting.attention,
        "fused_ce": setting.fused_ce,
        "sharding": setting.sharding,
        "tp": setting.tp,
        "pp": setting.pp,
        "cp": setting.cp,
        "n_gpus": setting.n_gpus,
        "n_nodes": setting.n_nodes,
        "gpu": asked.gpu.id,
        "gpu_memory_gib": asked.gpu.memory_gib_usable or asked.gpu.memory_gb,
    }


def main() -> None:
    for asked in questions(sys.argv[1:]):
        question = plain(asked) if isinstance(asked, Settings) else None
        if question is not None:
            print(json.dumps(question))


if __name__ == "__main__":
    main()
