"""The short form that people type, read and echoed."""

import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perrun import grammar, verbs
from perrun.errors import InvalidInput
from perrun.surfaces import cli

SELLERS = ("lambda", "runpod", "aws")
READ = {
    "70B qlora, 2000 examples of 2000 tokens, 2 epochs, under $20": (
        "meta-llama/Llama-3.1-70B",
        {"method": "qlora", "examples": 2000, "tokens_per_example": 2000, "epochs": 2},
        {"budget_usd": 20},
    ),
    "full fine-tune of llama 3.1 8b on 8x H100 SXM, 10k pairs of 512 tokens, 3 epochs, within 5 hours": (
        "meta-llama/Llama-3.1-8B",
        {"method": "full", "examples": 10_000, "tokens_per_example": 512, "epochs": 3},
        {"deadline_h": 5, "gpus": ("H100-SXM-80GB",), "n_gpus": 8},
    ),
    "Mixtral DPO QLoRA 5000 pairs 1.5k tokens each 1 epoch lambda spot": (
        "mistralai/Mixtral-8x7B-v0.1",
        {"method": "qlora", "objective": "dpo", "examples": 5000, "tokens_per_example": 1500, "epochs": 1},
        {"providers": ("lambda",), "terms": ("interruptible",)},
    ),
    "Qwen/Qwen2.5-7B lora r=64 seq 4096 global batch 64 1,000 rows in 90 minutes": (
        "Qwen/Qwen2.5-7B",
        {"method": "lora", "lora_rank": 64, "seq_len": 4096, "global_batch": 64, "examples": 1000},
        {"deadline_h": 1.5},
    ),
    "gemma 2 9b full of 50M tokens within a day for less than 100 bucks": (
        "google/gemma-2-9b",
        {"method": "full", "examples": 48828, "tokens_per_example": 1024},
        {"budget_usd": 100, "deadline_h": 24},
    ),
    "8b full fp8 8-bit adam no packing under 100 dollars": (
        "meta-llama/Llama-3.1-8B",
        {"method": "full", "precision": "fp8", "optimizer": "adamw-8bit", "packing": False},
        {"budget_usd": 100},
    ),
}


@pytest.mark.parametrize("text", READ)
def test_people_are_understood(text: str) -> None:
    model, job, wish = READ[text]
    found = grammar.parse(text, SELLERS)
    assert (found.model, found.job, found.wish) == (model, job, wish)


def test_tokens_of_the_whole_set_become_rows() -> None:
    found = grammar.parse("8B qlora, 8M tokens")
    assert found.job["examples"] * found.job["tokens_per_example"] == pytest.approx(8e6, rel=1e-3)


def test_a_stack_and_a_micro_batch_belong_to_the_strategy() -> None:
    assert grammar.parse("8B qlora with unsloth micro batch 4").strategy == {"framework": "unsloth", "micro_batch": 4}


def test_a_size_alone_says_what_it_was_taken_for_and_what_else_it_may_be() -> None:
    (line,) = [line for line in grammar.parse("32B qlora").understood if "model" in line]
    assert "model Qwen/Qwen2.5-32B " in line
    assert "also" in line


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("gemma 3 27b qlora bananas", "bananas"),
        ("8B qlora on a Z9000", "Z9000"),
        ("qlora, 2000 examples", "no model"),
        ("8B lora qlora", "method is said twice"),
        ("8B qlora under $5 under $6", "budget_usd is said twice"),
        ("Qwen/Qwen2.5-7B or google/gemma-2-9b", "two models"),
    ],
)
def test_what_is_not_understood_or_contradicts_is_named(text: str, named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        grammar.parse(text, SELLERS)


@given(
    examples=st.integers(1, 10**6),
    tokens=st.integers(1, 10**5),
    epochs=st.integers(1, 50),
    budget=st.integers(1, 10**5),
    order=st.permutations(range(5)),
)
def test_order_does_not_matter(examples: int, tokens: int, epochs: int, budget: int, order: list[int]) -> None:
    parts = [
        "8B qlora",
        f"{examples:,} examples of {tokens} tokens",
        f"{epochs} epochs",
        f"under ${budget}",
        "on 4090",
    ]
    found = grammar.parse(", ".join(parts[i] for i in order))
    assert found.job == {
        "method": "qlora", "examples": examples, "tokens_per_example": tokens, "epochs": epochs
    }  # fmt: skip
    assert found.wish == {"budget_usd": budget, "gpus": ("RTX-4090-24GB",)}


def test_the_answer_is_that_of_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["ask", "8B qlora, 5000 examples of 1500 tokens, 3 epochs, on a4000 or", "--json"]) == 2
    capsys.readouterr()
    assert cli.run(["ask", "8B qlora, 5000 examples of 1500 tokens, 3 epochs, on L40S", "--limit", "3", "--json"]) == 0
    asked = json.loads(capsys.readouterr().out)
    job = {"method": "qlora", "examples": 5000, "tokens_per_example": 1500, "epochs": 3}
    plan = verbs.plan("meta-llama/Llama-3.1-8B", job, gpus=("L40S-48GB",), limit=3)
    assert asked.pop("understood")
    assert asked.pop("command") == (
        "perrun plan meta-llama/Llama-3.1-8B --examples 5000 --tokens 1500 --epochs 3 --method qlora --gpu L40S-48GB"
    )
    assert asked == json.loads(plan.model_dump_json())


@pytest.mark.parametrize("text", READ)
def test_the_command_that_is_echoed_says_the_same(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.run(["ask", text, "--json"])
    asked = json.loads(capsys.readouterr().out)
    if code:  # a question that nothing answers has no command either
        assert asked["error"] in ("nothing_fits", "invalid_input")
        return
    command = shlex.split(asked.pop("command"))
    assert asked.pop("understood")
    assert cli.run([*command[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == asked
