"""The real packages as judges: recipes go to the environment of their stack, verdicts come back."""

import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
# whose Python judges a target; transformers, accelerate and TRL are seen through to .venv
ENVIRONMENTS = {"trl": "deepspeed", "accelerate": "deepspeed", "deepspeed": "deepspeed", "trainer": "deepspeed"}


def python_of(name: str) -> str:
    """The Python of a stack's environment, which is built first where it is not there or out of date."""
    subprocess.run([ROOT / "scripts/stacks/build", name], check=True)
    return str(ROOT / ".stacks" / name / "bin/python")


def verdicts(target: str, recipes: Sequence[dict[str, Any]]) -> list[str | None]:
    """What the stack's own parser says of each: None where it takes it."""
    return asked(ENVIRONMENTS.get(target, target), "judge.py", recipes)


def asked(environment: str, script: str, questions: Any) -> Any:
    """The last line that a script of scripts/stacks prints in an environment, as JSON."""
    done = subprocess.run(
        [python_of(environment), ROOT / "scripts/stacks" / script],
        input=json.dumps(questions), capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def complaints(found: Sequence[str | None]) -> Counter[str]:
    return Counter(text[:300] for text in found if text is not None)
