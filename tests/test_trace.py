"""The traced step against arithmetic by hand, against itself at full depth, and against measured runs."""

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perrun.errors import InvalidInput, UnsupportedModel
from perrun.facts import models
from perrun.terms import Job, Model, Rig, Strategy

pytestmark = pytest.mark.trace
torch = pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.0")
pytest.importorskip("peft")
pytest.importorskip("bitsandbytes")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from perrun.trace import Recipe, TracedPeak, trace  # noqa: E402
from perrun.trace.cuda_ops import FlashAttention  # noqa: E402
from perrun.trace.depth import truncated  # noqa: E402
from perrun.trace.live import LiveStorages, blocks  # noqa: E402
from perrun.trace.optimizers import BlockwiseOptimizer  # noqa: E402
from perrun.trace.step import Request, Tracer  # noqa: E402

GIB = 2**30
LAYERS, HIDDEN, FFN, HEADS, KV, VOCAB = 2, 256, 512, 4, 2, 1024
TINY: dict[str, Any] = {
    "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": FFN, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": KV, "vocab_size": VOCAB, "tie_word_embeddings": False,
}  # fmt: skip
MATRICES = (HIDDEN * HIDDEN, HIDDEN * HIDDEN // 2, HIDDEN * HIDDEN // 2, HIDDEN * HIDDEN, *(3 * (HIDDEN * FFN,)))
ROTARY = 2 * blocks(HIDDEN // HEADS // 2 * 4)  # two buffers of inverse frequencies
ELSEWHERE = 2 * VOCAB * HIDDEN * 2 + (2 * LAYERS + 1) * HIDDEN * 2 + ROTARY  # embedding, head, norms [bytes in bf16]


def tracer(recipe: Recipe | None = None, **asked: Any) -> Tracer:
    config = asked.pop("config", TINY)
    return Tracer(replace(Request(config, attention="flash2"), **asked), recipe or Recipe())


def tiny_model(**changes: Any) -> Model:
    known = models.get("meta-llama/Llama-3.2-1B")
    return known.model_copy(update={"config": TINY | changes})


def asked(method: str = "lora", **strategy: Any) -> tuple[Job, Strategy]:
    job = Job(model="tiny", method=method, seq_len=strategy.pop("seq_len", 512))  # type: ignore[arg-type]
    return job, Strategy(**{"attention": "flash2", "framework": "trl", **strategy})


# --- counting ---------------------------------------------------------------------------------------------------


def test_a_request_takes_whole_blocks_of_512_bytes() -> None:
    assert [blocks(n) for n in (0, 1, 512, 513)] == [0, 512, 512, 1024]


def test_the_highest_and_the_last_of_each_segment() -> None:
    live = LiveStorages()
    with FakeTensorMode(), live:
        live.enter("first")
        a = torch.empty(1024)  # 4096 bytes
        b = a + 1
        view = b.view(32, 32)  # no storage of its own
        del b, view
        live.enter("second")
        c = a.to(torch.bfloat16)
        live.leave()
        assert live.peaks == {"first": 8192, "second": 4096 + 2048}
        assert live.ends == {"first": 4096, "second": 4096 + 2048}
        assert sorted(born.size for born in live.living_at_peak("second")) == [2048, 4096]
        del a, c
    assert live.now == 0


# --- weights ----------------------------------------------------------------------------------------------------


def test_weights_in_bf16_by_hand() -> None:
    assert tracer(method="full").load == 2 * LAYERS * sum(MATRICES) + ELSEWHERE


def test_nf4_with_double_quantisation_by_hand() -> None:
    per_layer = 0
    for n in MATRICES:
        packed, absmax, nested = n // 2, n // 64, math.ceil(n / 64 / 256) * 4
        code_book, offset = 16 * 4, 4
        per_layer += sum(blocks(size) for size in (packed, absmax, nested, code_book, offset))
    shared_code_book = 256 * 4
    adapters = tracer(method="lora").load - tracer(method="full").load
    assert tracer(method="qlora").load == LAYERS * per_layer + shared_code_book + ELSEWHERE + adapters


def test_int8_weights_carry_a_float32_scale_per_row() -> None:
    rows = LAYERS * (HIDDEN + 2 * HIDDEN // 2 + HIDDEN + 2 * FFN + HIDDEN)
    adapters = tracer(method="lora").load - tracer(method="full").load
    assert tracer(method="lora-int8").load == LAYERS * sum(MATRICES) + 4 * rows + ELSEWHERE + adapters


def test_adapters_are_float32_unless_the_stack_says_otherwise() -> None:
    rank, ends = 16, [(HIDDEN, HIDDEN), (HIDDEN, HIDDEN // 2), (HIDDEN, HIDDEN // 2), (HIDDEN, HIDDEN)]
    ends += [(HIDDEN, FFN), (HIDDEN, FFN), (FFN, HIDDEN)]
    parameters = LAYERS * sum(rank * (a + b) for a, b in ends)
    base = tracer(method="full").load
    assert tracer().load - base == 4 * parameters
    assert tracer(Recipe(adapter_dtype="bf16")).load - base == 2 * parameters


def test_preparation_turns_what_is_not_quantised_to_float32() -> None:
    loaded = tracer(method="qlora").load
    assert tracer(Recipe(kbit="peft"), method="qlora").load - loaded == ELSEWHERE - ROTARY
    norms = (2 * LAYERS + 1) * HIDDEN * 2
    assert tracer(Recipe(kbit="norms"), method="qlora").load - loaded == norms


def test_four_bit_loading_reaches_experts_only_where_they_are_modules() -> None:
    moe = TINY | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
    fused = tracer(config=moe, method="qlora", lora_targets="attn").load
    modules = tracer(Recipe(experts="modules"), config=moe, method="qlora", lora_targets="attn").load
    experts = LAYERS * 4 * 3 * HIDDEN * FFN
    assert fused - modules == pytest.approx(experts * (2 - 0.5156), rel=0.01)


# --- kernels ----------------------------------------------------------------------------------------------------


def test_flash_attention_keeps_and_makes_what_its_kernels_do() -> None:
    b, s, h, kv, d = 1, 200, 4, 2, 64  # s is rounded up to 256 in the backward
    q_bytes, kv_bytes = b * s * h * d * 2, b * s * kv * d * 2
    live = LiveStorages()
    with FakeTensorMode(), live:
        q, k, v = (torch.empty(b, s, n, d, dtype=torch.bfloat16, requires_grad=True) for n in (h, kv, kv))
        live.enter("forward")
        out = FlashAttention.apply(q, k, v)
        lse = blocks(b * h * s * 4)
        assert live.now == q_bytes + 2 * kv_bytes + q_bytes + lse
        grad = torch.empty_like(out)
        before = live.now
        live.enter("backward")
        torch.autograd.grad(out, (q, k, v), grad)
        live.leave()
    buffers = b * h * 256 * 4 + b * 256 * h * d * 4  # softmax_d and the accumulator of dq, float32
    expanded = 2 * b * s * h * d * 2  # dk and dv of every query head
    assert live.peaks["backward"] - before == q_bytes + 2 * kv_bytes + buffers + expanded


def test_eager_attention_keeps_scores_and_flash_does_not() -> None:
    s = 512
    kept = {}
    for kernel in ("eager", "flash2"):
        kept[kernel] = tracer(method="full", attention=kernel).micro_step(1, s).saved
    # per layer: the softmax in float32 and its half-precision copy
    assert kept["eager"] - kept["flash2"] > LAYERS * HEADS * s * s * (4 + 2)


def test_a_fused_loss_stores_no_logits() -> None:
    s = 2048
    plain, fused = (tracer(Recipe(loss=kind)).micro_step(1, s) for kind in ("plain", "fused"))  # type: ignore[arg-type]
    assert plain.lines["loss"]["logits_and_loss"] == s * VOCAB * (2 + 4 + 4)  # product, float32 copy, log_softmax
    chunk = s // (VOCAB // HIDDEN)  # Liger: tokens / ceil(vocabulary / hidden)
    assert fused.lines["loss"]["logits_and_loss"] <= chunk * VOCAB * 2
    assert fused.peak < plain.peak


def test_backward_of_a_plain_loss_holds_three_float32_copies_of_the_logits() -> None:
    s = 2048
    assert tracer().micro_step(1, s).lines["backward"]["logits_and_loss"] == s * VOCAB * 3 * 4


def test_logits_copies_of_older_transformers() -> None:
    """4.46 to 4.48: product, float32, shifted float32, log_softmax; to 4.45 without the product; or no float32."""
    s, rows = 2049, 2  # one token more than is shifted; of a single row the shifted logits would be a view
    copies = {"shifted": 2 + 4 + 4 + 4, "inline_float": 4 + 4 + 4, "inline": 2 + 2 + 2}
    for kind, each in copies.items():
        step = tracer(Recipe(logits=kind)).micro_step(rows, s)  # type: ignore[arg-type]
        assert step.lines["loss"]["logits_and_loss"] == pytest.approx(rows * s * VOCAB * each, rel=0.002), kind


def test_liger_kernels_keep_less() -> None:
    eager, liger = (tracer(Recipe(kernels=kind), method="full").micro_step(1, 2048) for kind in ("eager", "liger"))  # type: ignore[arg-type]
    assert liger.saved < 0.8 * eager.saved


# --- checkpointing ----------------------------------------------------------------------------------------------


def test_checkpointing_keeps_one_input_a_layer() -> None:
    def kept(layers: int) -> int:
        made = tracer(config=TINY | {"num_hidden_layers": layers}, method="full")
        made.checkpointing("full")
        return made.micro_step(1, 512).saved - made.load

    assert kept(4) - kept(2) == 2 * 512 * HIDDEN * 2


def test_checkpoints_on_the_host_leave_no_inputs_on_the_gpu() -> None:
    def kept(layers: int) -> int:
        made = tracer(config=TINY | {"num_hidden_layers": layers})
        made.checkpointing("unsloth")
        return made.micro_step(1, 512).saved - made.load

    assert kept(4) == pytest.approx(kept(2), abs=200_000)  # adapters of two layers alone


def test_switching_checkpointing_off_again_leaves_nothing_behind() -> None:
    made = tracer()
    first = made.micro_step(1, 512)
    made.clear()
    made.checkpointing("full")
    assert made.micro_step(1, 512).saved < first.saved
    made.clear()
    made.checkpointing("none")
    assert made.micro_step(1, 512).segments == first.segments


# --- optimizers -------------------------------------------------------------------------------------------------


def test_foreach_adamw_takes_five_copies_of_the_weights_and_fused_four() -> None:
    made = tracer(method="full")
    made.micro_step(1, 512)
    counters = 2**14  # one float32 step count a parameter
    weights = made.load - ROTARY
    assert made.optimizer_steps("adamw", "foreach").later == pytest.approx(5 * weights + ROTARY, abs=counters)
    assert made.optimizer_steps("adamw", "fused").later == pytest.approx(4 * weights + ROTARY, abs=counters)
    assert made.optimizer_steps("sgd", "fused").states == 0


def test_eight_bit_states_by_hand() -> None:
    with FakeTensorMode():
        large, small = (torch.nn.Parameter(torch.empty(n, dtype=torch.bfloat16)) for n in (256 * 1000, 4000))
        large.grad, small.grad = torch.empty_like(large), torch.empty_like(small)
        eight = BlockwiseOptimizer([large, small], states=2, bits=8, paged=False)
        eight.step()
        made = sum(t.nbytes for states in eight.state.values() for t in states)
        assert made == 2 * (256_000 + 1000 * 4) + 2 * 4000 * 4  # bytes and absmax; float32 below 4096 elements
        paged = BlockwiseOptimizer([large, small], states=2, bits=8, paged=True)
        paged.step()
        assert sum(t.nbytes for states in paged.state.values() for t in states) == 2 * 1000 * 4 + 2 * 4000 * 4


def test_a_second_step_is_the_first_with_the_states_beside_it() -> None:
    made = tracer(method="full")
    first = made.micro_step(1, 512)
    states = made.optimizer_steps("adamw", "foreach").states
    with made._modes():
        optimizer = torch.optim.AdamW(made.model.parameters(), foreach=True)
        optimizer.step()
    made.clear()
    assert made.micro_step(1, 512).peak == first.peak + states
    del optimizer


# --- the whole --------------------------------------------------------------------------------------------------


def test_lines_sum_to_the_peak_and_the_peak_is_a_phase() -> None:
    for method in ("full", "lora", "qlora", "dora", "qdora", "lora-int8"):
        for checkpointing in ("none", "full"):
            found = trace(tiny_model(), *asked(method, checkpointing=checkpointing), recipe=Recipe())
            assert sum(found.lines.values()) == found.peak == found.phases[found.phase], method


def test_dpo_runs_both_answers_and_the_reference() -> None:
    pair = tracer(objective="dpo").micro_step(1, 512)
    assert pair.forward_end == tracer().micro_step(2, 512).forward_end
    copy, alone = tracer(method="full", objective="dpo").load, tracer(method="full").load
    assert copy == 2 * alone


def test_accumulated_gradients_live_through_the_forward() -> None:
    once, twice = (trace(tiny_model(), *asked("full", grad_accum=n), recipe=Recipe()).phases["loss"] for n in (1, 2))
    assert twice - once == pytest.approx(tracer(method="full").load - ROTARY, rel=1e-3)


def test_hopper_takes_larger_workspaces() -> None:
    ampere, hopper = (
        trace(tiny_model(), *asked(), Rig(gpu=gpu), recipe=Recipe()).lines["workspace"]
        for gpu in ("A100-SXM4-80GB", "H100-SXM-80GB")
    )
    assert (ampere, hopper) == (2 * 8_519_680, 2 * 32 * 2**20)


def test_progress_is_told() -> None:
    heard: list[float] = []
    trace(tiny_model(), *asked(), recipe=Recipe(), progress=lambda _word, share: heard.append(share))
    assert heard[0] == 0
    assert heard[-1] == 1


@pytest.mark.parametrize(
    ("model", "layers", "method"),
    [
        ("meta-llama/Llama-3.2-1B", 8, "full"),
        ("mistralai/Mistral-7B-v0.1", 7, "qlora"),
        ("google/gemma-2-2b", 10, "lora"),  # window and global by turns
        ("deepseek-ai/DeepSeek-V2-Lite", 6, "lora"),  # a dense layer first
    ],
)
@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_two_depths_give_every_depth_exactly(model: str, layers: int, method: str, checkpointing: str) -> None:
    known = models.get(model)
    config = truncated(known.config | {"model_type": known.model_type}, layers)
    cut = known.model_copy(update={"config": config})
    whole, reduced = (
        trace(cut, *asked(method, checkpointing=checkpointing), recipe=Recipe(), depth=depth)  # type: ignore[arg-type]
        for depth in ("full", "reduced")
    )
    assert len(reduced.layers) == 2
    assert reduced.phases == whole.phases
    assert sum(reduced.lines.values()) == reduced.peak


@pytest.mark.parametrize(
    ("strategy", "job"),
    [
        ({"sharding": "zero3"}, {}),
        ({"offload": "params"}, {}),
        ({"checkpointing": "selective"}, {}),
        ({"framework": "unsloth"}, {}),
        ({}, {"precision": "fp8"}),
        ({}, {"objective": "ppo"}),
        ({}, {"optimizer": "adamw-4bit"}),
    ],
)
def test_what_is_not_traced_is_refused(strategy: dict[str, Any], job: dict[str, Any]) -> None:
    base, layout = asked(**strategy)
    with pytest.raises(InvalidInput, match="not traced"):
        trace(tiny_model(), base.model_copy(update=job), layout)


def test_a_model_without_modelling_code_is_refused() -> None:
    stranger = tiny_model().model_copy(update={"model_type": "qwen", "config": TINY | {"model_type": "qwen"}})
    with pytest.raises(UnsupportedModel, match="qwen"):
        trace(stranger, *asked(), recipe=Recipe())


# --- measured ---------------------------------------------------------------------------------------------------

OLD = Recipe(logits="shifted", reentrant=True, lora_dropout=0.1, experts="modules")  # transformers 4.48, torch 2.4
AUTOCAST = replace(OLD, autocast=True, outputs_float32=True)
# GiB allocated on an A100, foundation-model-stack/fms-acceleration:scripts/benchmarks/refs/a100_80gb.csv
MEASURED = [
    ("mistralai/Mistral-7B-v0.1", "full", 4, OLD, 67.46),
    ("mistralai/Mistral-7B-v0.1", "lora", 4, OLD, 24.871),
    ("mistralai/Mistral-7B-v0.1", "lora", 8, OLD, 36.082),
    ("mistralai/Mistral-7B-v0.1", "qlora", 4, AUTOCAST, 15.249),
    ("mistralai/Mistral-7B-v0.1", "qlora", 8, replace(AUTOCAST, kbit="norms"), 34.461),
    ("mistralai/Mixtral-8x7B-v0.1", "qlora", 8, AUTOCAST, 45.421),
    ("NousResearch/Llama-2-70b-hf", "qlora", 4, AUTOCAST, 63.448),
    ("ibm/PowerLM-3b", "lora", 8, replace(OLD, logits="inline_float"), 30.876),
]


@pytest.mark.parametrize(("model", "method", "batch", "recipe", "gib"), MEASURED)
def test_traced_peaks_are_what_was_measured(model: str, method: str, batch: int, recipe: Recipe, gib: float) -> None:
    job = Job(model=model, method=method, seq_len=4096, lora_targets="attn")  # type: ignore[arg-type]
    strategy = Strategy(micro_batch=batch, attention="flash2", framework="fms-acceleration")
    found: TracedPeak = trace(
        models.get(model), job, strategy, Rig(gpu="A100-SXM4-80GB"), recipe=recipe, depth="reduced"
    )
    assert found.peak / GIB == pytest.approx(gib, rel=0.001)


# --- the grid ---------------------------------------------------------------------------------------------------

GRID = Path(__file__).parents[1] / "bench" / "data" / "trace_grid.csv"
SAMPLE = [
    ("HuggingFaceTB/SmolLM2-135M", "qlora", "full"),
    ("Qwen/Qwen3-0.6B", "lora", "none"),
    ("openai-community/gpt2", "full", "full"),
]


@pytest.mark.parametrize(("model", "method", "checkpointing"), SAMPLE)
def test_a_sample_of_the_grid_traces_to_the_same_bytes(model: str, method: str, checkpointing: str) -> None:
    wanted = {"model": model, "method": method, "checkpointing": checkpointing, "attention": "flash2", "layers": "2"}
    with GRID.open() as file:
        row = next(
            r for r in csv.DictReader(file) if all(r[k] == v for k, v in wanted.items()) and r["seq_len"] == "512"
        )
    known = models.get(model)
    config = truncated(known.config | {"model_type": known.model_type}, 2)
    made = tracer(Recipe(loss=row["recipe_loss"]), config=config, method=method)  # type: ignore[arg-type]
    made.checkpointing(checkpointing)
    step = made.micro_step(int(row["micro_batch"]), 512)
    for phase in ("load", "forward", "loss", "saved", "backward", "after_backward"):
        assert getattr(step, phase) == pytest.approx(int(row[phase]), rel=0.01), phase


def test_adapters_on_a_router_that_gives_two_tensors_are_refused_as_training_would_fail() -> None:
    model = models.get("meta-llama/Llama-4-Scout-17B-16E-Instruct")
    config = truncated(model.config | {"model_type": model.model_type}, 4)
    with pytest.raises(InvalidInput, match="router"):
        Tracer(Request(config, method="lora", attention="sdpa"), Recipe())
