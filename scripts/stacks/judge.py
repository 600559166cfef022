"""Lets the real packages judge recipes; run by the Python of a stack's environment.

    .stacks/axolotl/bin/python scripts/stacks/judge.py < recipes.json > verdicts.json

Reads a list of recipes ({target, files, command, n_gpus}), prints a list as long: null where the stack's own parser
accepts it, else what it says. Nothing is downloaded and nothing trains; what only a GPU would tell (that it is there,
that it computes in bf16) is told to the parsers, as if the recipe's rig were this machine.
"""

import contextlib
import io
import json
import os
import shlex
import sys
import tempfile
import traceback
import types
from functools import cache
from pathlib import Path


def judged(recipe):
    """None where accepted, else the complaint."""
    with tempfile.TemporaryDirectory() as folder:
        here = os.getcwd()
        os.chdir(folder)
        try:
            for name, text in recipe["files"].items():
                Path(name).write_text(text, encoding="utf-8")
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
                JUDGES[recipe["target"]](recipe)
        except SystemExit as why:
            return f"exit {why.code}: {said.getvalue()[-600:]}"
        except Exception as why:
            line = traceback.extract_tb(why.__traceback__)[-1]
            return f"{type(why).__name__}: {str(why)[:600]} ({line.filename.rpartition('/')[2]}:{line.lineno})"
        finally:
            os.chdir(here)
    return None


def words_of(recipe):
    """Words of the command, with numbers for the variables that an engine sets."""
    command = recipe["command"].replace('"$NODE_RANK"', "0").replace('"$MASTER_ADDR"', "10.0.0.1")
    return shlex.split(command.replace('"$MASTER_PORT"', "29500").replace('"$HOSTFILE"', "hostfile"))


# ------------------------------------------------------------------------------------------------- trl


@cache
def trl_parser(name):
    import importlib

    return importlib.import_module(f"trl.scripts.{name}").make_parser()


def trl(recipe):
    """The parser of `trl NAME` takes what is its own; what it leaves must be flags of accelerate's launcher."""
    words = words_of(recipe)
    assert words[0] == "trl", words
    given = trl_parser(words[1]).parse_args_and_config(
        [*words[2:], "--use_cpu", "True"], return_remaining_strings=True, separate_remaining_strings=True
    )
    from_file, from_words = given[-2:]
    assert not from_file, f"unknown keys {from_file}"
    launched(["--config_file" if word == "--accelerate_config" else word for word in from_words])
    accelerate_file("accelerate.yaml")


@cache
def launcher():
    from accelerate.commands.launch import launch_command_parser

    return launch_command_parser()


def launched(flags):
    """Flags of `accelerate launch`, with the checks that it makes of them and of the file that they name."""
    from accelerate.commands.launch import _validate_launch_command

    parsed = launcher().parse_args([*flags, "train.py"])
    parsed.num_processes = parsed.num_processes or None
    _validate_launch_command(parsed)


def accelerate_file(name):
    """The file by accelerate's own loader; its nested parts, which that never looks at, by the classes they fill."""
    from accelerate.commands.config.config_args import load_config_from_file

    found = load_config_from_file(name)
    if found.fsdp_config:
        fsdp_plugin(found.fsdp_config)
    if found.deepspeed_config:
        deepspeed_plugin(found.deepspeed_config)
    if found.fp8_config:
        fp8_plugin(dict(found.fp8_config))


def fsdp_plugin(config):
    from accelerate import FullyShardedDataParallelPlugin

    as_if_cuda()
    names = {
        "fsdp_offload_params": "cpu_offload", "fsdp_cpu_ram_efficient_loading": "cpu_ram_efficient_loading",
        "fsdp_sync_module_states": "sync_module_states", "fsdp_use_orig_params": "use_orig_params",
        "fsdp_forward_prefetch": "forward_prefetch", "fsdp_backward_prefetch": "backward_prefetch",
        "fsdp_version": "fsdp_version",
    }  # fmt: skip
    for name in config:
        assert name in vars(launcher().parse_args(["x.py"])), f"fsdp_config.{name} is no flag of accelerate launch"
    FullyShardedDataParallelPlugin(
        **{names.get(name, name.removeprefix("fsdp_")): value for name, value in config.items()}
    )


def deepspeed_plugin(config):
    from accelerate.utils import DeepSpeedPlugin

    for name in config:
        assert name in vars(launcher().parse_args(["x.py"])), f"deepspeed_config.{name} is no flag of accelerate launch"
    DeepSpeedPlugin(**{name: value for name, value in config.items() if name != "deepspeed_multinode_launcher"})


def as_if_cuda():
    """accelerate's classes ask which device there is, and whether Transformer Engine is."""
    import accelerate.utils.dataclasses as classes
    import torch

    classes.is_cuda_available = classes.is_transformer_engine_available = lambda *_, **__: True
    classes.is_transformer_engine_mxfp8_available = lambda: True
    torch.cuda.current_device = lambda: 0


def fp8_plugin(config):
    from accelerate.utils import AORecipeKwargs, TERecipeKwargs

    backend = config.pop("backend")
    as_if_cuda()
    if backend == "TE":
        TERecipeKwargs(**config)
        return
    assert backend == "AO", backend
    flags = vars(launcher().parse_args(["x.py"]))
    for name in config:
        assert f"fp8_{name}" in flags, f"fp8_config.{name} is no flag of accelerate launch"
    if importable("torchao"):
        AORecipeKwargs()


def importable(name):
    from importlib.util import find_spec

    return find_spec(name) is not None


def accelerate(recipe):
    words = words_of(recipe)
    assert (*words[:2], words[-1]) == ("accelerate", "launch", "train.py"), words
    launched(words[2:-1])
    accelerate_file("accelerate.yaml")


# --------------------------------------------------------------------------- deepspeed and the Trainer


def deepspeed(recipe):
    from deepspeed.launcher.runner import parse_args

    parse_args(words_of(recipe)[1:])
    deepspeed_file("deepspeed.json")


def deepspeed_file(name):
    from deepspeed.runtime.config import DeepSpeedConfig

    DeepSpeedConfig(json.loads(Path(name).read_text(encoding="utf-8")))


@cache
def trainer_parser():
    from transformers import HfArgumentParser, TrainingArguments

    return HfArgumentParser(TrainingArguments)


def trainer(_recipe):
    text = json.loads(Path("arguments.json").read_text(encoding="utf-8"))
    (found,) = trainer_parser().parse_dict({**text, "use_cpu": True})
    if found.deepspeed:
        deepspeed_file(found.deepspeed)
    if found.fsdp:
        from accelerate import FullyShardedDataParallelPlugin

        as_if_cuda()
        FullyShardedDataParallelPlugin(**found.fsdp_plugin_args)


# ------------------------------------------------------------------------------ axolotl, LLaMA-Factory

HOPPER = {"bf16": True, "fp8": True, "tf32": True, "n_gpu": 8, "n_node": 1, "compute_capability": "sm_90"}


def axolotl(recipe):
    """axolotl's validation, on a machine of so many Hopper cards."""
    import yaml
    from axolotl.cli.config import prepare_plugins
    from axolotl.utils.config import validate_config
    from axolotl.utils.dict import DictDefault

    sys.modules.setdefault("ring_flash_attn", types.ModuleType("ring_flash_attn"))  # imports CUDA kernels
    config = DictDefault(yaml.safe_load(Path("axolotl.yaml").read_text(encoding="utf-8")))
    if config.get("plugins"):
        prepare_plugins(config)
    validate_config(
        config,
        capabilities={**HOPPER, "n_gpu": recipe["n_gpus"]},
        env_capabilities={"torch_version": "2.11.0"},
    )
    if "deepspeed.json" in recipe["files"]:
        assert json.loads(Path("deepspeed.json").read_text(encoding="utf-8"))["zero_optimization"]["stage"] in (1, 2, 3)


def llamafactory(recipe):
    import yaml

    as_if_on_gpus(recipe)
    from llamafactory.hparams import get_train_args

    get_train_args({**yaml.safe_load(Path("llamafactory.yaml").read_text(encoding="utf-8")), "use_cpu": True})
    if "deepspeed.json" in recipe["files"]:
        deepspeed_file("deepspeed.json")


def as_if_on_gpus(recipe):
    """Its parser asks the machine for bf16, and the launcher for how many ranks there are."""
    from llamafactory.hparams import parser
    from transformers.training_args import ParallelMode

    parser.is_torch_bf16_gpu_available = lambda: True
    ranks = (
        ParallelMode.DISTRIBUTED
        if recipe["n_gpus"] > 1 or "FORCE_TORCHRUN" in recipe["command"]
        else ParallelMode.NOT_PARALLEL
    )
    from llamafactory.hparams.training_args import TrainingArguments

    TrainingArguments.parallel_mode = property(lambda _: ranks)


# ---------------------------------------------------------------------------------------------- NeMo AutoModel


def nemo_automodel(recipe):
    """Each section by the class that it fills, every `_target_` as a name that can be imported."""
    from nemo_automodel.cli.app import build_parser
    from nemo_automodel.cli.utils import load_yaml, resolve_recipe_name
    from nemo_automodel.components.datasets.llm.chat_dataset import ChatDatasetConfig
    from nemo_automodel.components.training.step_scheduler import StepSchedulerConfig
    from nemo_automodel.recipes._dist_utils import parse_distributed_section

    words = words_of(recipe)
    if words[0] == "automodel":
        build_parser().parse_args(words[1:])
    config = load_yaml("nemo_automodel.yaml")
    resolve_recipe_name(config["recipe"])
    targets_exist(config)
    steps = {name: value for name, value in config["step_scheduler"].items() if name != "local_batch_size"}
    StepSchedulerConfig(**steps)
    parse_distributed_section(config["distributed"])
    rows = {name: value for name, value in config["dataset"].items() if name != "_target_"}
    ChatDatasetConfig(**rows)
    nemo_options(config)


def nemo_options(config):
    from nemo_automodel.components._peft.lora import PeftConfig
    from nemo_automodel.components.quantization.fp8 import FP8Config
    from nemo_automodel.components.utils.compile_utils import CompileConfig

    if "peft" in config:
        PeftConfig(**{name: value for name, value in config["peft"].items() if name != "_target_"})
    if "fp8" in config:
        FP8Config(**config["fp8"])
    if "compile" in config:
        CompileConfig(**config["compile"])
    if "quantization" in config:
        from transformers import BitsAndBytesConfig

        BitsAndBytesConfig(**config["quantization"])


def targets_exist(node):
    """Names of classes and functions, all of this package's own or torch's, are found where they are said to be."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name in ("_target_", "collate_fn") and isinstance(value, str) and value.startswith(("torch.", "nemo_")):
                found(value)
            targets_exist(value)


@cache
def found(path):
    import importlib

    parts = path.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            node = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError as why:
            if why.name and not ".".join(parts[:cut]).startswith(why.name):
                raise
            continue
        for part in parts[cut:]:
            node = getattr(node, part)
        return
    raise ImportError(path)


JUDGES = {
    "trl": trl, "accelerate": accelerate, "deepspeed": deepspeed, "trainer": trainer, "axolotl": axolotl,
    "llamafactory": llamafactory, "nemo-automodel": nemo_automodel,
}  # fmt: skip

if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("WORLD_SIZE", "1")
    print("\n" + json.dumps([judged(recipe) for recipe in json.load(sys.stdin)]))
