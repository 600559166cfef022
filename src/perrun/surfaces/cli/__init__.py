"""The command line: `perrun COMMAND ...`. A command's module is imported only when it is called."""

import gc
import os
import sys
from importlib import import_module

# name -> (module, one line of help); the module holds a typer app called `app`.
COMMANDS: dict[str, tuple[str, str]] = {
    "plan": ("plan", "rank what can be bought for a run: cost, hours, fit, verdict"),
    "ask": ("ask", "a plan by the short form that people type"),
    "estimate": ("estimate", "memory and speed of a job on one rig"),
    "fit": ("fit", "which methods fit on which rigs"),
    "compare": ("compare", "break-even between two rigs on one job"),
    "recipe": ("recipe", "the files and the command that train it with a stack"),
    "diff": ("diff", "what a change of a configuration costs"),
    "validate": ("validate", "predicted against measured runs"),
    "calibrate": ("calibrate", "fit the laws' few constants on measured runs"),
    "prices": ("prices", "the price book: refresh, list, history, market, import, ..."),
    "rules": ("rules", "published rules of thumb, as their pages count"),
    "gpus": ("gpus", "known GPUs and their figures"),
    "models": ("models", "known models; any other by its config.json"),
    "serve": ("serve", "the same over HTTP (extra serve)"),
    "mcp": ("mcp", "the same as tools for agents (extra mcp)"),
    "schema": ("schema", "JSON Schema of an answer"),
}
# What libraries read when they are imported. Our matrices are small: starting BLAS threads costs a tenth of a second of
# CPU and saves nothing. We use no pydantic plugins: looking for them reads the metadata of every installed package.
QUICK_START = {"OPENBLAS_NUM_THREADS": "1", "PYDANTIC_DISABLE_PLUGINS": "__all__"}
# Imports make objects that stay: looking among them for cycles every 700 of them is a twentieth of a plan.
GARBAGE = 100_000
HELP = """usage: perrun COMMAND [ARGUMENTS]

Cost per run, not per hour: what a fine-tune costs, on which GPU, and whether it fits.

commands:
{commands}

perrun COMMAND --help tells the flags. First try:
  perrun plan meta-llama/Llama-3.1-8B --method qlora --examples 5000 --tokens 1500 --epochs 3
"""


def help_text() -> str:
    return HELP.format(commands="\n".join(f"  {name:<10} {text}" for name, (_, text) in COMMANDS.items()))


def main(argv: list[str] | None = None) -> None:
    """Entry point of the console script; exits with the command's code."""
    arguments = sys.argv[1:] if argv is None else argv
    for name, value in QUICK_START.items():
        os.environ.setdefault(name, value)
    gc.set_threshold(GARBAGE)
    sys.exit(run(arguments))


def run(arguments: list[str]) -> int:
    """Exit code of one call: 0, 1 (a valid answer that says no), or 2 (a mistake in what was asked)."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(help_text(), end="")
        return 0
    name, rest = arguments[0], arguments[1:]
    if name in ("-V", "--version"):
        from perrun import __version__

        print(f"perrun {__version__}")
        return 0
    try:
        if name not in COMMANDS:
            raise _unknown(name)
        module = import_module(f"perrun.surfaces.cli.{COMMANDS[name][0]}")
        code = module.app(rest, prog_name=f"perrun {name}", standalone_mode=False)
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        from perrun.surfaces.cli import complaints

        return complaints.tell(error, "--json" in rest, name)
    return code if isinstance(code, int) else 0


def _unknown(name: str) -> Exception:
    from difflib import get_close_matches

    from perrun.errors import UnknownName

    near = get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean perrun {near[0]}?" if near else "perrun --help tells what each does"
    return UnknownName(f"no command {name!r}", expected=", ".join(COMMANDS), hint=hint)
