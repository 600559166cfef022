"""TRL recipes really train: a random model of two layers on the CPU, and two ranks under FSDP2 over gloo."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perrun import recipes
from perrun.facts import models
from perrun.terms import Job, Recipe, Rig, Strategy

pytest.importorskip("trl", reason="the extra train")
SAYINGS = ("the red fox runs", "a blue bird sings", "many small fish swim", "the old dog sleeps well")
ROLES = "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}</s>{% endfor %}"
STEPS = 3


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of two layers, a tokenizer trained on four sentences, chats and pairs."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
    from tokenizers import models as kinds
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    home = tmp_path_factory.mktemp("tiny")
    made = Tokenizer(kinds.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "</s>", "<pad>"]
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    made.train_from_iterator(SAYINGS * 20, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    tokenizer.chat_template = ROLES
    tokenizer.save_pretrained(home / "model")
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, bos_token_id=0, eos_token_id=1, pad_token_id=2,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(home / "model")

    def turn(role: str, i: int) -> dict[str, str]:
        return {"role": role, "content": SAYINGS[i % 4] * (1 + i % 3)}

    chats = [{"messages": [turn("user", i), turn("assistant", i + 1)]} for i in range(64)]
    pairs = [
        {"prompt": [turn("user", i)], "chosen": [turn("assistant", i + 1)], "rejected": [turn("assistant", i + 2)]}
        for i in range(32)
    ]
    for name, rows in (("chats", chats), ("pairs", pairs)):
        (home / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return home


def recipe(tiny: Path, data: str, rig: Rig, sharding: str = "none", **job: Any) -> Recipe:
    asked = Job(model=str(tiny / "model"), seq_len=128, global_batch=4, **job)
    laid_out = Strategy(micro_batch=2, grad_accum=2 // rig.n_gpus, fused_ce=True, sharding=sharding)  # type: ignore[arg-type]
    return recipes.emit(
        "trl", asked, laid_out, rig, models.get(asked.model), data=str(tiny / f"{data}.jsonl"), steps=STEPS
    )


def trained(made: Recipe, folder: Path) -> list[dict[str, float]]:
    """Runs the emitted command on the CPU, where TRL and accelerate must be told so; its log, line by line."""
    for name, text in made.files.items():
        (folder / name).write_text(text)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    words = [*shlex.split(made.command), "--use_cpu", "True", "--cpu"]
    environment = {**os.environ, "PATH": path, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=environment, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [ast.literal_eval(text) for text in re.findall(r"\{'[^{}]*\}", done.stdout)]
    return [{name: float(value) for name, value in row.items()} for row in rows]


@pytest.mark.parametrize(
    ("data", "job"),
    [
        ("chats", {"method": "lora", "lora_rank": 4}),
        ("chats", {"method": "full"}),
        ("pairs", {"method": "lora", "lora_rank": 4, "objective": "dpo", "packing": False}),
    ],
    ids=["sft lora", "sft full", "dpo lora"],
)
def test_a_recipe_trains(tiny: Path, tmp_path: Path, data: str, job: dict[str, Any]) -> None:
    log = trained(recipe(tiny, data, Rig(gpu="L4-24GB"), **job), tmp_path)
    losses = [row["loss"] for row in log if "loss" in row]
    assert len(losses) == STEPS
    assert all(0 < loss < 20 for loss in losses)
    assert (tmp_path / "out" / f"checkpoint-{STEPS}").is_dir()
    adapter = (tmp_path / "out" / "adapter_model.safetensors").is_file()
    assert adapter == (job["method"] == "lora")


def test_two_ranks_share_a_model_under_fsdp2(tiny: Path, tmp_path: Path) -> None:
    made = recipe(tiny, "chats", Rig(gpu="L4-24GB", n_gpus=2), "fsdp2", method="full")
    assert "--num_processes 2" in made.command
    losses = [row["loss"] for row in trained(made, tmp_path) if "loss" in row]
    assert len(losses) == STEPS
