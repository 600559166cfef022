"""Every recipe of the grid is taken by the real parser of its stack, and the judges do refuse what is wrong."""

import json
import subprocess
from collections import Counter
from functools import cache
from typing import Any

import pytest
import yaml

import recipes_grid as grid
import stacks
from perrun import recipes
from perrun.facts import models
from perrun.terms import Job, Rig, Strategy

pytestmark = pytest.mark.stacks
JUDGED = ("trl", "accelerate", "deepspeed", "trainer", "axolotl", "llamafactory", "nemo-automodel")
BROKEN: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("trl", {"max_prompt_length": 512}, "max_prompt_length"),
    ("trl", {"optim": "adamw_bnb_9bit"}, "adamw_bnb_9bit"),
    ("accelerate", {"num_procs": 8}, "num_procs"),
    ("accelerate", {"fsdp_config__fsdp_offload": True}, "fsdp_offload"),
    ("deepspeed", {"zero_optimization__stage": 4}, "stage"),
    ("trainer", {"per_device_batch": 8}, "per_device_batch"),
    ("axolotl", {"optimizer": "adamw_bnb_8bit"}, "FSDP2 not compatible"),
    ("llamafactory", {"cutoff_length": 9}, "cutoff_length"),
    ("nemo-automodel", {"distributed__strategie": "x"}, "strategie"),
    ("nemo-automodel", {"peft__rank": 8}, "rank"),
)
LLAMA = models.get("meta-llama/Llama-3.1-8B")


def question(target: str, order: Any) -> dict[str, Any]:
    made = recipes.emit(target, order.job, order.strategy, order.rig, order.model)
    return {"target": target, "files": made.files, "command": made.command, "n_gpus": order.rig.n_gpus}


@cache
def judged(target: str) -> tuple[list[str | None], list[str | None]]:
    """Verdicts on the grid and on the broken recipes of a target: its packages are imported once."""
    asked = [question(target, order) for order in grid.sample(target)]
    wrong = [broken(target, **changes) for name, changes, _ in BROKEN if name == target]
    found = stacks.verdicts(target, asked + wrong)
    return found[: len(asked)], found[len(asked) :]


@pytest.mark.parametrize("target", JUDGED)
def test_the_stack_takes_every_recipe_of_the_grid_and_refuses_what_is_wrong(target: str) -> None:
    """Judges that take everything would prove nothing."""
    good, bad = judged(target)
    assert len(good) >= 60
    assert stacks.complaints(good) == Counter()
    expected = [says for name, _, says in BROKEN if name == target]
    assert expected
    for verdict, says in zip(bad, expected, strict=True):
        assert verdict is not None
        assert says in verdict


def test_scripts_for_unsloth_compile_and_their_trainer_arguments_are_trls() -> None:
    """Unsloth itself needs a GPU to be imported; what it hands to TRL is judged by TRL's own list of fields."""
    import ast

    from perrun.recipes import fields

    for order in grid.sample("unsloth"):
        text = recipes.emit("unsloth", order.job, order.strategy, order.rig, order.model).files["train.py"]
        calls = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)]
        configs = [c for c in calls if isinstance(c.func, ast.Name) and c.func.id in ("SFTConfig", "DPOConfig")]
        assert len(configs) == 1
        names = {keyword.arg for keyword in configs[0].keywords}
        assert names <= fields.known("trl", order.job.objective)


def broken(target: str, **changes: Any) -> dict[str, Any]:
    """A good recipe of eight GPUs with some keys of its main file changed."""
    sharding = "zero3" if target == "deepspeed" else "fsdp2"
    job = Job(model=LLAMA.id, method="lora", global_batch=8)
    made = recipes.emit(
        target, job, Strategy(sharding=sharding, fused_ce=True), Rig(gpu="H100-SXM-80GB", n_gpus=8), LLAMA
    )  # type: ignore[arg-type]
    name = recipes.tables.target(target).file
    settings = yaml.safe_load(made.files[name])
    for path, value in changes.items():
        *parents, last = path.split("__")
        inner = settings
        for parent in parents:
            inner = inner[parent]
        inner[last] = value
    text = yaml.safe_dump(settings) if name.endswith("yaml") else json.dumps(settings)
    return {"target": target, "files": {**made.files, name: text}, "command": made.command, "n_gpus": 8}


@pytest.mark.slow
def test_lists_of_fields_are_what_the_packages_say_now() -> None:
    for name in ("axolotl", "llamafactory", "deepspeed"):
        stacks.python_of(name)
    done = subprocess.run(
        [stacks.ROOT / "scripts/stacks/fields", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
