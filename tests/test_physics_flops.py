"""FLOPs by hand, and against torch's own counter on a real transformers step."""

import json
from pathlib import Path
from typing import Any

import pytest

from perrun import setting, speed
from perrun.facts import models, stacks
from perrun.physics import flops
from perrun.shapes import Layer, Linear
from perrun.terms import Job, Rig, Strategy


def a_layer(**changes: Any) -> Layer:
    facts: dict[str, Any] = {
        "count": 1,
        "linears": (Linear("q_proj", 8, 8, "attention"), Linear("down_proj", 16, 8, "mlp")),
        "mixer": "attention",
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 2,
        "v_head_dim": 2,
        "window": None,
        "norms": 2,
        "qk_norm": False,
        "mlp": "gated",
        "intermediate": 16,
        "other_params": 0,
    }
    return Layer(**(facts | changes))


def test_a_matrix_costs_two_operations_a_weight_and_active_copy() -> None:
    assert flops.matrix(Linear("q_proj", 10, 20, "attention")) == 400
    assert flops.matrix(Linear("experts", 10, 20, "expert", copies=8, active=2)) == 800


def test_an_adapter_costs_two_operations_for_each_of_its_weights() -> None:
    assert flops.adapter(Linear("q_proj", 10, 20, "attention"), rank=4) == 2 * 4 * (10 + 20)


@pytest.mark.parametrize(("tokens", "window"), [(1, None), (7, None), (7, 3), (7, 7), (7, 100), (64, 8)])
def test_mean_context_is_the_average_of_what_each_query_sees(tokens: int, window: int | None) -> None:
    seen = [min(i + 1, window or tokens) for i in range(tokens)]
    assert flops.mean_context(tokens, window) == pytest.approx(sum(seen) / tokens)


def test_attention_counts_scores_and_values_over_what_is_seen() -> None:
    # 4 heads, 2 wide for q and k and 2 for v: 2 x 4 x (2 + 2) = 32 operations per key; 5 tokens see 3 on average.
    assert flops.attention(a_layer(), 5) == 32 * 3
    assert flops.attention(a_layer(), 5, causal=False) == 32 * 5
    assert flops.attention(a_layer(window=2), 4) == 32 * (1 + 2 + 2 + 2) / 4


def test_a_state_space_mixer_does_not_grow_with_the_sequence() -> None:
    assert flops.attention(a_layer(mixer="mamba"), 100) == flops.attention(a_layer(mixer="mamba"), 100_000)


def test_preferences_train_pairs_and_a_reference_runs_forward() -> None:
    assert (flops.trained_sequences("dpo"), flops.forward_only("dpo")) == (2, 1)
    assert (flops.trained_sequences("orpo"), flops.forward_only("orpo")) == (2, 0)
    assert (flops.trained_sequences("sft"), flops.forward_only("sft")) == (1, 0)


def counted(shape: Any, job: Job, strategy: Strategy, framework: str = "trl") -> float:
    asked = setting.of(job, strategy, Rig(gpu="A100-SXM4-80GB"))
    todo = speed.work(shape, asked, stacks.get(framework), None, 1.0)
    parts = (todo.product_flops, todo.half_flops, todo.expert_flops, todo.grouped_flops, todo.attention_flops)
    return float(sum(parts))


def test_full_fine_tuning_of_llama_2_7b_is_six_n_plus_attention() -> None:
    shape = models.get("meta-llama/Llama-2-7b-hf").shape
    job = Job(model="x", method="full", seq_len=4096, tokens_per_example=4096)
    per_token = counted(shape, job, Strategy(checkpointing="none", attention="flash2")) / 4096
    weights = 32 * (4 * 4096**2 + 3 * 4096 * 11008) + 4096 * 32000  # layers and head; the embedding multiplies nothing
    attention = 32 * 2 * 32 * 2 * 128 * 4097 / 2 * 3.5  # layers x 2 x heads x (128 + 128) x context x (1 + 2.5)
    assert per_token == pytest.approx(6 * weights + attention)


def test_lora_needs_no_weight_gradient_of_the_base() -> None:
    shape = models.get("meta-llama/Llama-2-7b-hf").shape
    strategy = Strategy(checkpointing="none", attention="flash2")
    jobs = {m: Job(model="x", method=m, lora_rank=8, seq_len=64, tokens_per_example=64) for m in ("full", "lora")}
    full, lora = (counted(shape, jobs[m], strategy) / 64 for m in ("full", "lora"))
    weights = 32 * (4 * 4096**2 + 3 * 4096 * 11008) + 4096 * 32000
    adapters = 32 * 8 * (4 * (4096 + 4096) + 3 * (4096 + 11008))
    assert full - lora == pytest.approx(2 * weights - 6 * adapters)


def test_dpo_costs_four_forwards_and_two_backwards_of_a_sequence() -> None:
    shape = models.get("meta-llama/Llama-2-7b-hf").shape
    strategy = Strategy(checkpointing="none", attention="eager")
    one = {"model": "x", "method": "full", "seq_len": 64, "tokens_per_example": 64}
    sft, dpo = counted(shape, Job(**one), strategy), counted(shape, Job(**one, objective="dpo"), strategy)
    assert dpo / sft == pytest.approx((2 * (1 + 1) + 2 * 2) / (1 + 2))


TINY = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 500,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}
SEQUENCES, TOKENS = 2, 32


def torch_counts(method: str, checkpointing: str, reentrant: bool, rank: int) -> int:
    """FLOPs of one real step on the CPU, by torch's counter."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**{k: v for k, v in TINY.items() if k not in ("model_type", "architectures", "torch_dtype")})
    config._attn_implementation = "eager"
    model: Any = LlamaForCausalLM(config)
    if method == "lora":
        from peft import LoraConfig, get_peft_model

        model.enable_input_require_grads()  # as trainers do, so that the first layer's inputs get gradients too
        model = get_peft_model(model, LoraConfig(r=rank, lora_dropout=0.0, target_modules=["q_proj", "v_proj"]))
    if checkpointing == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    model.train()
    ids = torch.randint(0, 500, (SEQUENCES, TOKENS))
    with FlopCounterMode(display=False) as counter:
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    return int(counter.get_total_flops())


@pytest.mark.trace
@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize(("checkpointing", "reentrant"), [("none", False), ("full", False), ("full", True)])
def test_torch_counts_the_same(tmp_path: Path, method: str, checkpointing: str, reentrant: bool) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    shape = models.get(str(tmp_path)).shape
    job = Job(model="x", method=method, lora_rank=4, lora_targets="attn-qv", seq_len=TOKENS, tokens_per_example=TOKENS)
    strategy = Strategy(micro_batch=SEQUENCES, checkpointing=checkpointing, attention="eager")
    ours = counted(shape, job, strategy, "ms-swift" if reentrant else "trl")
    # the rotary table is a product of one frequency and one position: 2 x 8 x 32 operations that no law needs
    assert ours == pytest.approx(torch_counts(method, checkpointing, reentrant, 4), rel=1e-3)
