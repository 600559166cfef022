"""What every rival's script shares: questions in on stdin, answers out on stdout, one JSON object a line.

An answer has allocated_gib (tensors alone) and device_gib (with context and margins) per GPU where the tool tells
them apart, the same figure twice where it does not; tokens_per_s over all GPUs; or refused, with the tool's reason.
Each script runs in the rival's own environment, so nothing of perrun may be imported here.
"""

import contextlib
import io
import json
import sys
from collections.abc import Callable
from typing import Any

Question = dict[str, Any]
Answer = dict[str, Any]

# Flash kernels never store the matrix of scores; the others may.
FLASH = ("flash2", "flash3", "te", "sdpa")


class RefusalError(Exception):
    """The tool has no place for what the question states."""


def targets(question: Question) -> str:
    """attn-qv, attn or all-linear: the nearest set that tools know."""
    stated = question["lora_targets"]
    if stated.startswith("all-linear") or ("_proj" in stated and ("up" in stated or "gate" in stated)):
        return "all-linear"
    return "attn-qv" if stated == "attn-qv" else "attn"


def config(question: Question) -> dict[str, Any]:
    """The question's model as a config.json of the llama kind."""
    return {
        "model_type": question["model_type"],
        "hidden_size": question["hidden_size"],
        "num_hidden_layers": question["layers"],
        "num_attention_heads": question["heads"],
        "num_key_value_heads": question["kv_heads"],
        "head_dim": question["head_dim"],
        "intermediate_size": question["intermediate_size"],
        "vocab_size": question["vocab_size"],
        "tie_word_embeddings": question["tied"],
        "max_position_embeddings": 131072,
        "torch_dtype": "bfloat16",
    }


def need(condition: bool, what: str) -> None:
    """Refuses in the tool's name: `what` is what it has no place for."""
    if not condition:
        raise RefusalError(what)


def serve(answer: Callable[[Question], Answer]) -> None:
    """Answers every question; whatever the tool raises is a refusal with its words."""
    for line in sys.stdin:
        question = json.loads(line)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                found = answer(question)
        except Exception as why:
            found = {"refused": f"{type(why).__name__}: {why}".split("\n")[0][:200]}
        print(json.dumps({"source": question["source"], "line": question["line"]} | found))
