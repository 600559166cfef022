"""Prints what a stack's own parser knows, as JSON; run by the Python of that stack's environment.

    .stacks/axolotl/bin/python scripts/stacks/fields.py axolotl

scripts/stacks/fields writes src/perrun/recipes/fields/*.json with it; a slow test does the same and compares.
"""

import dataclasses
import json
import sys
from importlib.metadata import version


def of_parser(parser):
    """Flags of an argparse parser by their names, `--no_x` left out."""
    found = {}
    for action in parser._actions:
        names = [name for name in action.option_strings if name.startswith("--") and not name.startswith("--no")]
        if names and action.dest != "help":
            found[action.dest] = of_flag(action)
    return found


def of_flag(action):
    entry = {"default": plain(action.default)}
    if action.choices:
        entry["choices"] = [plain(choice) for choice in action.choices]
    return entry


def of_dataclass(kind):
    return {
        field.name: {"type": spelled(field.type), "default": plain(field.default)} for field in dataclasses.fields(kind)
    }


def of_model(kind):
    """Fields of a pydantic model, and the aliases under which they may be written."""
    found = {}
    for name, field in kind.model_fields.items():
        alias = field.validation_alias
        others = [alias] if isinstance(alias, str) else list(getattr(alias, "choices", []))
        for spelling in dict.fromkeys([name, *(one for one in [field.alias, *others] if isinstance(one, str))]):
            found[spelling] = {"type": spelled(field.annotation), "default": plain(field.default)}
    return found


def spelled(annotation):
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def plain(value):
    """A default as JSON has it; what only the running program knows (a folder, a device) is left out."""
    if value is dataclasses.MISSING or "PydanticUndefined" in repr(value):
        return None
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return getattr(value, "value", str(type(value).__name__))


def trl():
    import importlib

    names = ("sft", "dpo", "kto", "reward", "grpo")
    return "trl", {name: of_parser(importlib.import_module(f"trl.scripts.{name}").make_parser()) for name in names}


def trainer():
    from transformers import TrainingArguments

    return "transformers", {"top": of_dataclass(TrainingArguments)}


def accelerate():
    from accelerate.commands.config.config_args import ClusterConfig
    from accelerate.commands.launch import launch_command_parser
    from accelerate.utils import TERecipeKwargs

    flags = of_parser(launch_command_parser())
    fp8 = {name: entry for name, entry in flags.items() if name.startswith("fp8_")}
    # nested keys are not checked by accelerate at all; each becomes a flag of its launcher, with or without a prefix
    zero = {"deepspeed_config_file", "zero_stage", "offload_optimizer_device", "offload_param_device"}
    zero |= {"gradient_accumulation_steps", "gradient_clipping", "zero3_init_flag", "zero3_save_16bit_model"}
    zero |= {"offload_optimizer_nvme_path", "offload_param_nvme_path", "deepspeed_multinode_launcher"}
    zero |= {"deepspeed_hostfile", "deepspeed_exclusion_filter", "deepspeed_inclusion_filter"}
    return "accelerate", {
        "top": of_dataclass(ClusterConfig),
        "fsdp_config": {name: entry for name, entry in flags.items() if name.startswith("fsdp_")},
        "deepspeed_config": {name: entry for name, entry in flags.items() if name in zero},
        # with and without its prefix; the launcher hands on what is no flag too, as a variable that the recipe reads
        "fp8_config": fp8
        | {name.removeprefix("fp8_"): entry for name, entry in fp8.items()}
        | of_dataclass(TERecipeKwargs),
    }


def deepspeed():
    import re
    from pathlib import Path

    from deepspeed.runtime import config
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    # unknown top-level keys are dropped in silence: what is known are the names that its constants give
    root = Path(config.__file__).parent.parent
    top = {"zero_optimization", "activation_checkpointing"}
    for file in sorted(root.rglob("constants.py")) + sorted(root.rglob("*config*.py")):
        source = file.read_text(encoding="utf-8")
        top |= set(re.findall(r"""^[A-Z0-9_]+\s*=\s*["']([a-z][a-z0-9_]+)["']""", source, re.MULTILINE))
        top |= set(re.findall(r"""param_dict\.get\(["']([a-z0-9_]+)["']""", source))
    return "deepspeed", {
        "top": {name: {} for name in sorted(top)},
        "zero_optimization": of_model(DeepSpeedZeroConfig),
    }


def axolotl():
    from axolotl.integrations.cut_cross_entropy.args import CutCrossEntropyArgs
    from axolotl.integrations.liger.args import LigerArgs
    from axolotl.utils.schemas.config import AxolotlInputConfig
    from axolotl.utils.schemas.fsdp import FSDPConfig

    plugins = of_model(LigerArgs) | of_model(CutCrossEntropyArgs)
    return "axolotl", {"top": of_model(AxolotlInputConfig) | plugins, "fsdp_config": of_model(FSDPConfig)}


def llamafactory():
    from llamafactory.hparams.parser import _TRAIN_ARGS
    from transformers import HfArgumentParser

    return "llamafactory", {"top": of_parser(HfArgumentParser(_TRAIN_ARGS))}


def main(name):
    package, sections = {
        "trl": trl, "trainer": trainer, "accelerate": accelerate, "deepspeed": deepspeed, "axolotl": axolotl,
        "llamafactory": llamafactory,
    }[name]()  # fmt: skip
    answer = {"package": package, "version": version(package), "fields": sections}
    print(json.dumps(answer, sort_keys=True))


if __name__ == "__main__":
    main(sys.argv[1])
