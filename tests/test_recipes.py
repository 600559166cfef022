"""Recipes: what is written can be read back, every assumed setting stands in the files, and refusals say who can."""

import json

import pytest
import yaml

import recipes_grid as grid
from perrun import recipes
from perrun.errors import InvalidInput, Unavailable, UnknownName
from perrun.facts import models
from perrun.recipes import fields, folder, tables
from perrun.recipes.order import Order
from perrun.terms import Job, Recipe, Rig, Strategy

LLAMA = models.get("meta-llama/Llama-3.1-8B")
ONE = Rig(gpu="H100-SXM-80GB")
EIGHT = Rig(gpu="H100-SXM-80GB", n_gpus=8)
WHOLE = ("trl", "axolotl", "llamafactory", "unsloth", "nemo-automodel")  # targets that say the whole of a run


def written(target: str, order: Order) -> Recipe:
    return recipes.emit(target, order.job, order.strategy, order.rig, order.model)


def read_back(target: str, recipe: Recipe, name: str | None = None) -> recipes.Read:
    name = name or ("run.sh" if "run.sh" in recipe.files else tables.target(target).file)
    return folder.read(recipe.files[name], {k: v for k, v in recipe.files.items() if k != name}, name)


def qlora(target: str = "trl", rig: Rig = ONE, **strategy: object) -> Recipe:
    job = Job(model=LLAMA.id, method="qlora", global_batch=16)
    laid_out = Strategy(**{"grad_accum": 16 // rig.n_gpus, "fused_ce": True, **strategy})  # type: ignore[arg-type]
    return recipes.emit(target, job, laid_out, rig, LLAMA)


# ------------------------------------------------------------------------------------------ round trip


def test_the_grid_is_large_and_covers_every_word_that_a_target_can_express() -> None:
    assert sum(len(grid.sample(target)) for target in recipes.names()) >= 300


@pytest.mark.parametrize("target", recipes.names())
def test_what_is_written_reads_back_as_the_job_and_the_strategy_that_made_it(target: str) -> None:
    for order in grid.sample(target):
        found = read_back(target, written(target, order))
        job, strategy, _ = folder.settings(found, order.rig.n_gpus)
        for name, value in job.items():
            assert getattr(order.job, name) == value, (name, order)
        for name, value in strategy.items():
            assert getattr(order.strategy, name) == value, (name, order)
        assert found.n_gpus in (None, order.rig.n_gpus)
        assert found.n_nodes in (None, order.rig.n_nodes)
        assert found.unread == []
        assert found.unknown == []


# What no training configuration holds: how much data there is. What follows from the rest: grad_accum, by the batch.
NOT_IN_A_CONFIGURATION = {"examples", "tokens_per_example", "longest_example", "grad_accum"}
ONLY_ADAPTERS = {"lora_rank", "lora_targets"}


@pytest.mark.parametrize("target", WHOLE)
def test_a_whole_recipe_says_all_of_job_and_strategy(target: str) -> None:
    row = tables.target(target)
    for order in grid.sample(target):
        job, strategy, _ = folder.settings(read_back(target, written(target, order)), order.rig.n_gpus)
        silent = {"tp", "pp", "cp", "ep"} - row.degrees
        silent |= {"compile"} if row.compile == {"no"} else set()
        parallel = {name for name in ("tp", "pp", "cp", "ep") if getattr(order.strategy, name) == 1}
        expected = set(Strategy.model_fields) | set(Job.model_fields)
        expected -= NOT_IN_A_CONFIGURATION | silent | parallel | (set() if order.job.adapters else ONLY_ADAPTERS)
        assert expected <= {*job, *strategy}


@pytest.mark.parametrize("target", ["trl", "axolotl", "llamafactory", "nemo-automodel"])
def test_the_main_file_alone_says_the_same_but_for_the_ranks(target: str) -> None:
    for order in grid.sample(target)[:20]:
        recipe = written(target, order)
        beside = read_back(target, recipe)
        alone = read_back(target, recipe, tables.target(target).file)
        assert {**alone.job} == {**beside.job}
        assert {k: v for k, v in alone.strategy.items() if k != "sharding"} == {
            k: v for k, v in beside.strategy.items() if k != "sharding"
        }


# --------------------------------------------------------------------------- every setting is explicit


@pytest.mark.parametrize("target", ["trl", "trainer", "axolotl", "llamafactory"])
def test_every_key_is_one_that_the_stack_knows(target: str) -> None:
    for order in grid.sample(target):
        text = written(target, order).files[tables.target(target).file]
        assert fields.strange(target, order.job.objective, text) == []


@pytest.mark.parametrize("target", ["trl", "accelerate", "llamafactory"])
def test_nested_keys_of_accelerate_which_it_never_checks_are_flags_of_its_launcher(target: str) -> None:
    for order in grid.sample(target):
        text = written(target, order).files.get("accelerate.yaml")
        for section in ("fsdp_config", "deepspeed_config", "fp8_config"):
            keys = list(yaml.safe_load(text).get(section) or {}) if text else []
            assert fields.nested("accelerate", section, keys) == []


@pytest.mark.parametrize("target", ["deepspeed", "axolotl", "trainer", "llamafactory"])
def test_top_level_keys_of_deepspeed_which_it_drops_in_silence_are_names_of_its_constants(target: str) -> None:
    for order in grid.sample(target):
        text = written(target, order).files.get("deepspeed.json")
        if text:
            assert fields.strange("deepspeed", None, text) == []
            assert fields.nested("deepspeed", "zero_optimization", list(json.loads(text)["zero_optimization"])) == []


def test_trl_is_told_what_its_defaults_would_change() -> None:
    """trl 1.16 stores weights in fp32, cuts rows at 1024, takes batches of 8 and drops 5 % of LoRA unless told."""
    said = yaml.safe_load(qlora().files["trl.yaml"])
    stored = fields.stored("trl")
    assert stored is not None
    defaults = {name: entry["default"] for name, entry in stored["fields"]["sft"].items()}
    assert (defaults["dtype"], defaults["max_length"], defaults["lora_dropout"]) == ("float32", 1024, 0.05)
    assert defaults["per_device_train_batch_size"] == 8
    assert said["dtype"] == "bfloat16"
    assert said["max_length"] == 2048
    assert said["lora_dropout"] == 0.0
    assert said["per_device_train_batch_size"] == 1


def test_a_single_gpu_is_said_too_since_accelerate_takes_all_that_it_sees() -> None:
    recipe = qlora()
    assert "--num_processes 1" in recipe.command
    assert yaml.safe_load(recipe.files["accelerate.yaml"])["num_processes"] == 1


def test_a_quantised_base_is_stored_as_numbers_that_sharding_can_split() -> None:
    said = yaml.safe_load(qlora(rig=EIGHT, sharding="fsdp2").files["trl.yaml"])
    assert said["bnb_4bit_quant_storage"] == said["dtype"] == "bfloat16"


def test_installs_are_pinned_and_hold_what_the_settings_need() -> None:
    recipe = qlora(rig=EIGHT, sharding="zero3", attention="flash2")
    packages = recipe.install.removeprefix("pip install ").split()
    assert all("==" in package for package in packages)
    assert {"trl", "bitsandbytes", "deepspeed", "flash-attn"} <= {package.split("==")[0] for package in packages}


def test_several_machines_are_told_their_rank_by_variables() -> None:
    two = Rig(gpu="H100-SXM-80GB", n_gpus=16, n_nodes=2)
    for target in ("trl", "axolotl", "trainer", "accelerate"):
        job = Job(model=LLAMA.id, method="lora", global_batch=16)
        recipe = recipes.emit(target, job, Strategy(sharding="fsdp2", fused_ce=True), two, LLAMA)
        assert '"$NODE_RANK"' in recipe.command
        assert '"$MASTER_ADDR"' in recipe.command


# -------------------------------------------------------------------------------------------- refusals


def test_a_plan_that_a_target_cannot_express_names_the_reason_and_those_that_can() -> None:
    with pytest.raises(InvalidInput, match="unsloth cannot express 8 GPUs") as why:
        recipes.emit("unsloth", Job(model=LLAMA.id), Strategy(attention="flash2", fused_ce=True), EIGHT, LLAMA)
    with pytest.raises(InvalidInput, match="trl cannot express objective orpo") as why:
        recipes.emit("trl", Job(model=LLAMA.id, objective="orpo", packing=False), Strategy(), ONE, LLAMA)
    assert "axolotl" in why.value.expected
    assert "llamafactory" in why.value.expected
    assert "trl" not in why.value.expected.replace("one of ", "").split(", ")


@pytest.mark.parametrize(
    ("job", "strategy", "reason"),
    [
        ({"precision": "fp8", "method": "qlora"}, {}, "already quantised"),
        ({"optimizer": "lion-8bit"}, {"sharding": "fsdp2"}, "lion-8bit under fsdp2"),
        ({}, {"sharding": "zero2", "offload": "params"}, "splits no parameters"),
        ({}, {"sharding": "ddp", "offload": "both"}, "without sharding"),
        ({"objective": "dpo"}, {"sharding": "ddp"}, "packing of dpo rows"),
        ({"precision": "bf16-mixed"}, {"sharding": "zero3"}, "that is bf16-true"),
        ({"objective": "rm", "packing": False}, {"sharding": "ddp", "fused_ce": True}, "a fused loss for rm"),
        ({}, {"sharding": "ddp"}, "never stores them"),
        ({}, {"sharding": "fsdp2", "tp": 2}, "tp 2"),
    ],
)
def test_combinations_that_would_fail_on_the_machine_are_refused_here(job: dict, strategy: dict, reason: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(InvalidInput, match=reason):
        recipes.emit(
            "trl", Job(model=LLAMA.id, method=job.pop("method", "lora"), **job), Strategy(**strategy), EIGHT, LLAMA
        )


def test_llamafactory_refuses_a_fused_loss_for_a_family_without_liger_kernels() -> None:
    """It would train on with a plain loss, and need the memory that the plan does not count."""
    other = models.get("tiiuae/falcon-7b")
    with pytest.raises(InvalidInput, match="no liger kernels"):
        recipes.emit("llamafactory", Job(model=other.id), Strategy(fused_ce=True), ONE, other)


def test_a_target_that_nobody_knows_says_which_is_near() -> None:
    with pytest.raises(UnknownName, match="did you mean axolotl"):
        recipes.emit("axolotll", Job(model=LLAMA.id), Strategy(), ONE, LLAMA)


# ---------------------------------------------------------------------------- configurations of others


def test_a_command_line_as_people_type_it() -> None:
    text = """accelerate launch --config_file fsdp.yaml --num_processes 4 trl/scripts/sft.py \\
        --model_name_or_path meta-llama/Llama-3.1-8B --dtype bfloat16 --use_peft --load_in_4bit \\
        --lora_target_modules q_proj v_proj --lora_r 8 --per_device_train_batch_size 2 \\
        --gradient_accumulation_steps=4 --max_length 4096 --packing --attn_implementation flash_attention_2
    """
    fsdp = "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n  fsdp_offload_params: true\n"
    found = folder.read(text, {"fsdp.yaml": fsdp}, "train.sh")
    job, strategy, _ = folder.settings(found)
    assert (job["method"], job["lora_rank"], job["lora_targets"]) == ("qlora", 8, "attn-qv")
    assert (job["seq_len"], job["packing"], job["precision"]) == (4096, True, "bf16-true")
    assert job["global_batch"] == 2 * 4 * 4
    assert (strategy["sharding"], strategy["offload"], strategy["attention"]) == ("fsdp2", "both", "flash2")
    assert strategy["checkpointing"] == "full"  # trl's own default


def test_a_published_axolotl_example_in_its_old_spelling() -> None:
    """The settings of axolotl's examples/llama-3/qlora.yml of 2024, of which perrun needs no other key."""
    text = """
base_model: NousResearch/Meta-Llama-3-8B
load_in_4bit: true
adapter: qlora
sequence_len: 4096
sample_packing: true
lora_r: 32
lora_alpha: 16
lora_target_linear: true
gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 4
optimizer: paged_adamw_32bit
bf16: auto
gradient_checkpointing: true
flash_attention: true
evals_per_epoch: 4
"""
    found = folder.read(text, {}, "qlora.yml")
    assert found.target == "axolotl"
    assert found.job["method"] == "qlora"
    assert found.job["optimizer"] == "paged-adamw-32bit"
    assert found.strategy["attention"] == "flash2"
    assert found.unread == ["evals_per_epoch"]
    assert found.unknown == []


def test_the_trainers_arguments_and_a_deepspeed_file_with_autos() -> None:
    text = json.dumps({"per_device_train_batch_size": 4, "num_train_epochs": 3, "optim": "adamw_torch", "bf16": True,
                       "gradient_accumulation_steps": 2, "deepspeed": "configs/ds.json"})  # fmt: skip
    zero = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
            "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}}  # fmt: skip
    found = folder.read(text, {"ds.json": json.dumps(zero)}, "args.json")
    assert (found.strategy["sharding"], found.strategy["offload"]) == ("zero2", "optimizer")
    assert (found.strategy["micro_batch"], found.job["epochs"]) == (4, 3)


def test_a_key_that_the_stack_drops_in_silence_is_named_with_the_one_that_was_meant() -> None:
    found = folder.read("base_model: x\nmicro_batchsize: 8\n", {}, "a.yaml")
    assert found.unknown == ["micro_batchsize (did you mean micro_batch_size?)"]


@pytest.mark.parametrize(
    ("name", "text", "names"),
    [
        ("a.yaml", "base_model: x\nmicro_batch_size: two\n", "micro_batch_size is 'two'"),
        ("a.yaml", "base_model: x\noptimizer: muon\n", "optimizer is 'muon'"),
        ("a.yaml", "base_model: x\nadapter: llama-adapter\n", "adapter is 'llama-adapter'"),
        ("a.yaml", "base_model: x\nsequence_len: [1, 2]\n", "sequence_len"),
        ("l.yaml", "stage: sft\nquantization_bit: 3\n", "quantization_bit is 3"),
        ("l.yaml", "stage: sft\nfinetuning_type: freeze\n", "finetuning_type is 'freeze'"),
        ("t.yaml", "model_name_or_path: x\nload_in_4bit: true\n", "load_in_4bit without use_peft"),
        ("t.yaml", "model_name_or_path: x\ngradient_accumulation_steps: 0\n", "gradient_accumulation_steps is 0"),
        ("d.json", '{"zero_optimization": {"stage": 4}}', "zero_optimization: stage is 4"),
        ("c.yaml", "distributed_type: TPU\n", "distributed_type is 'TPU'"),
        ("b.yaml", "base_model: [unclosed\n", "b.yaml line 2"),
        ("j.json", '{"zero_optimization": \n{', "j.json line 2"),
        ("n.yaml", "colour: red\n", "of no stack that perrun reads"),
        ("x.sh", "echo hello\n", "starts no training"),
        ("x.sh", "trl sft --config gone.yaml\n", "gone.yaml, which is not beside it"),
        ("t.py", "print(1)\n", "never calls FastLanguageModel"),
        ("o.yaml", "model:\n  _component_: torchtune.models.llama3\n", "wound down"),
    ],
)
def test_an_unreadable_configuration_names_the_key_or_the_line(name: str, text: str, names: str) -> None:
    with pytest.raises(InvalidInput) as why:
        folder.read(text, {}, name)
    assert names in str(why.value)


def test_a_folder_is_read_by_its_script_and_a_file_with_those_that_belong_to_it(tmp_path) -> None:  # type: ignore[no-untyped-def]
    recipe = qlora(rig=EIGHT, sharding="zero2", offload="optimizer")
    for name, text in recipe.files.items():
        (tmp_path / name).write_text(text)
    whole, one = folder.read_file(tmp_path), folder.read_file(tmp_path / "trl.yaml")
    assert whole == one
    assert (whole.n_gpus, whole.strategy["sharding"], whole.strategy["offload"]) == (8, "zero2", "optimizer")
    with pytest.raises(Unavailable, match=r"gone\.yaml cannot be read"):
        folder.read_file(tmp_path / "gone.yaml")
