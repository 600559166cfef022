"""The short form that people type: "70B qlora, 2000 examples of 2000 tokens, 2 epochs, under $20".

A small grammar without a language model: patterns are taken out of the text one by one, then names (cards, providers,
stacks, models), and what is left must be filler. Whatever was not understood is an error that names it.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from perrun.errors import InvalidInput
from perrun.facts import gpus, models, stacks

N = r"(\d[\d,]*(?:\.\d+)?)\s*(k|m|thousand|million)?"
TIMES = {"k": 1e3, "thousand": 1e3, "m": 1e6, "million": 1e6}
HOURS = {"m": 1 / 60, "h": 1.0, "d": 24.0, "w": 168.0}
LIMIT = (
    r"(?:under|below|within|in|by|for|at most|no more than|less than|up to|<=?"
    r"|(?:max(?:imum)?|budget|deadline)(?: of)?)"
)
ROWS = r"(?:examples?|rows?|samples?|pairs?|conversations?|dialogues?|records?|items?|prompts?|documents?|docs?)"
TOKENS = r"(?:tokens?|toks?)"
FILLER = frozenset(
    (
        "a", "an", "and", "at", "card", "cards", "data", "dataset", "each", "fine", "finetune",
        "finetuning", "fine-tune", "fine-tuning", "for", "from", "gpu", "gpus", "i", "in", "it", "llm",
        "me", "model", "my", "of", "on", "only", "over", "please", "run", "should", "the", "to", "train",
        "training", "tune", "using", "want", "what", "with", "would",
    )
)  # fmt: skip

# phrase -> (field of the job, value); longer phrases first, since the first that fits is taken
WORDS: tuple[tuple[str, str, Any], ...] = (
    (r"paged (?:8[- ]?bit adamw?|adamw?[- ]8[- ]?bit)", "optimizer", "paged-adamw-8bit"),
    (r"8[- ]?bit adamw?|adamw?[-_ ]8[- ]?bit", "optimizer", "adamw-8bit"),
    (r"4[- ]?bit adamw?|adamw?[-_ ]4[- ]?bit", "optimizer", "adamw-4bit"),
    (r"adafactor", "optimizer", "adafactor"),
    (r"adamw?", "optimizer", "adamw"),
    (r"sgd", "optimizer", "sgd"),
    (r"lion[- ]8[- ]?bit|8[- ]?bit lion", "optimizer", "lion-8bit"),
    (r"lion", "optimizer", "lion"),
    (r"qdora", "method", "qdora"),
    (r"dora", "method", "dora"),
    (r"q-?lora|4[- ]?bit lora", "method", "qlora"),
    (r"8[- ]?bit lora|lora[- ](?:int8|8[- ]?bit)", "method", "lora-int8"),
    (r"lora", "method", "lora"),
    (r"full(?:[- ](?:fine-?tun\w+|parameters?|weights?|training))?", "method", "full"),
    (r"mxfp8", "precision", "mxfp8"),
    (r"nvfp4", "precision", "nvfp4"),
    (r"fp8", "precision", "fp8"),
    (r"fp16", "precision", "fp16-mixed"),
    (r"mixed precision|bf16[- ]mixed", "precision", "bf16-mixed"),
    (r"bf16(?:[- ]true)?", "precision", "bf16-true"),
    (r"fp32|float32", "precision", "fp32"),
    (r"(?:continued )?pre-?train(?:ing)?", "objective", "pretrain"),
    (r"reward model(?:l?ing)?", "objective", "rm"),
    (r"sft|dpo|orpo|kto|grpo|ppo", "objective", None),
    (r"unpacked|not packed|no packing|without packing|padded", "packing", False),
    (r"packed|packing", "packing", True),
)
TERMS = (
    (r"spot|interruptible|pre-?emptible", "interruptible"),
    (r"on[- ]demand", "on-demand"),
    (r"reserved", "reserved"),
    (r"prepaid(?: blocks?)?", "prepaid-block"),
)
# Sizes without a name mean the base model of these families, in this order (the most asked for first).
USUAL = (
    "meta-llama/Llama-3.1",
    "meta-llama/Llama-3.2",
    "meta-llama/Llama-",
    "Qwen/Qwen2.5-",
    "Qwen/Qwen3-",
    "mistralai/",
)


@dataclass(slots=True)
class Asked:
    """What a text asks: the model, fields of Job, Strategy and `planner.Wish`, and what was read as what."""

    model: str = ""
    job: dict[str, Any] = field(default_factory=dict[str, Any])
    strategy: dict[str, Any] = field(default_factory=dict[str, Any])
    wish: dict[str, Any] = field(default_factory=dict[str, Any])
    understood: list[str] = field(default_factory=list[str])

    def put(self, where: dict[str, Any], name: str, value: Any, said: str) -> None:
        """Raises InvalidInput for a thing that is said twice, with two values."""
        if where.get(name, value) != value:
            raise InvalidInput(f"{name} is said twice: {where[name]} and {value}", expected="one of them")
        where[name] = value
        self.understood.append(f"{said.strip()}: {name} {_shown(value)}")


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return " or ".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _number(digits: str, unit: str | None) -> float:
    return float(digits.replace(",", "")) * TIMES.get((unit or "").lower(), 1.0)


class _Text:
    """What is left to be read."""

    def __init__(self, text: str) -> None:
        self.left = f" {text.strip()} "

    def take(self, pattern: str, use: Callable[[re.Match[str]], None]) -> None:
        """Every match of the pattern as whole words, taken out of the text."""
        whole = re.compile(rf"(?<![\w.$-])(?:{pattern})(?![\w-])", re.IGNORECASE)
        while found := whole.search(self.left):
            use(found)
            self.left = f"{self.left[: found.start()]} | {self.left[found.end() :]}"

    def words(self) -> list[str]:
        return [word for word in re.split(r"[\s,;:!?()]+", self.left) if word.strip(".")]


def parse(text: str, providers: Iterable[str] = ()) -> Asked:
    """Reads a question. providers: names that may stand in it.

    Raises InvalidInput for words that nothing understands, for a text without a model, and for contradictions.
    """
    asked, rest = Asked(), _Text(text)
    rest.take(r"(?:[\w-]+/[\w.-]+|\.{0,2}/[\w./-]+)", lambda m: _model(asked, m[0], m[0]))
    _limits(asked, rest)
    _lengths(asked, rest)
    for pattern, name, value in WORDS:
        rest.take(pattern, lambda m, n=name, v=value: asked.put(asked.job, n, m[0].lower() if v is None else v, m[0]))
    for pattern, term in TERMS:
        rest.take(pattern, lambda m, t=term: asked.put(asked.wish, "terms", (t,), m[0]))
    _names(asked, rest, providers)
    unread = [word for word in rest.words() if word != "|" and word.lower().strip(".") not in FILLER]
    if unread:
        raise InvalidInput(
            f"not understood: {', '.join(unread)}",
            expected="a model, a method, examples of tokens, epochs, cards, a budget or a deadline",
            hint='perrun ask "8B qlora, 5000 examples of 1500 tokens, 3 epochs, on 4090, under $5"',
        )
    if not asked.model:
        raise InvalidInput("no model is named", expected="a Hugging Face id, a name such as llama 3.1 8b, or a size")
    return asked


def _limits(asked: Asked, rest: _Text) -> None:
    """Budget and deadline."""

    def budget(m: re.Match[str]) -> None:
        digits, unit = (m[1], m[2]) if m[1] else (m[3], m[4])
        asked.put(asked.wish, "budget_usd", _number(digits, unit), m[0])

    rest.take(rf"(?:{LIMIT}\s*)?(?:(?:\$|usd)\s*{N}|{N}\s*(?:dollars?|usd|bucks|\$))", budget)
    unit = r"(hours?|hrs?|h|minutes?|mins?|days?|weeks?)"
    rest.take(
        rf"(?:{LIMIT}\s*)?{N}\s*{unit}",
        lambda m: asked.put(asked.wish, "deadline_h", _number(m[1], m[2]) * HOURS[m[3][0].lower()], m[0]),
    )
    rest.take(
        rf"{LIMIT}\s*(?:an?|one)\s*(hour|day|week)",
        lambda m: asked.put(asked.wish, "deadline_h", HOURS[m[1][0].lower()], m[0]),
    )


def _lengths(asked: Asked, rest: _Text) -> None:
    """How much data, how long its rows are, how often and in which portions."""
    job, strategy = asked.job, asked.strategy

    def whole(where: dict[str, Any], name: str) -> Callable[[re.Match[str]], None]:
        return lambda m: asked.put(where, name, round(_number(m[1], m[2])), m[0])

    rest.take(
        rf"(?:max(?:imum)? )?(?:seq(?:uence)?(?:[-_ ]?len(?:gth)?)?|context|ctx)\s*(?:of|=)?\s*{N}",
        whole(job, "seq_len"),
    )
    rest.take(rf"{N}\s*(?:context|ctx)", whole(job, "seq_len"))
    rest.take(rf"longest\s*(?:of|=)?\s*{N}(?:\s*{TOKENS})?", whole(job, "longest_example"))
    rest.take(rf"{N}\s*{ROWS}", whole(job, "examples"))
    of = r"(?:of|x|×|each)" if "examples" in job else r"(?:x|×|each)"  # 'a data set of 5M tokens' is its total
    rest.take(rf"{of}\s*(?:about |~)?{N}(?:\s*|-){TOKENS}(?:\s*each)?", whole(job, "tokens_per_example"))
    rest.take(rf"{N}(?:\s*|-){TOKENS}\s*(?:each|long|per \w+)", whole(job, "tokens_per_example"))
    rest.take(rf"{N}\s*(?:epochs?|passes)", lambda m: asked.put(job, "epochs", _number(m[1], m[2]), m[0]))
    rest.take(rf"(?:rank|r)\s*=?\s*{N}", whole(job, "lora_rank"))
    rest.take(rf"micro[-_ ]?batch(?:[-_ ]?size)?\s*(?:of|=)?\s*{N}", whole(strategy, "micro_batch"))
    rest.take(rf"(?:global[-_ ]?)?batch(?:[-_ ]?size)?\s*(?:of|=)?\s*{N}", whole(job, "global_batch"))
    rest.take(rf"{N}\s*{TOKENS}(?:\s*(?:in total|total|altogether))?", lambda m: _total(asked, m))


def _total(asked: Asked, m: re.Match[str]) -> None:
    """A number of tokens that belongs to no row is that of the whole data set, or of a row when examples are said."""
    tokens = round(_number(m[1], m[2]))
    if "examples" in asked.job:
        asked.put(asked.job, "tokens_per_example", tokens, m[0])
        return
    mean = asked.job.setdefault("tokens_per_example", min(1024, tokens))
    asked.put(asked.job, "examples", max(round(tokens / mean), 1), f"{m[0].strip()} in rows of {mean:,}")


def _names(asked: Asked, rest: _Text, providers: Iterable[str]) -> None:
    """Cards, providers, stacks and models among the words that are left, longest phrase first."""
    sellers = {name.lower(): name for name in providers}
    frameworks = set(stacks.names())
    words = rest.words()
    used = [word == "|" or word.lower() in FILLER for word in words]
    readers: tuple[Callable[[str], bool], ...] = (
        lambda phrase: _card(asked, phrase),
        lambda phrase: _known(asked, phrase, sellers, frameworks),
        lambda phrase: not asked.model and _named_model(asked, phrase),
    )
    for reader in readers:
        for size in (4, 3, 2, 1):
            for i in range(len(words) - size + 1):
                if not any(used[i : i + size]) and reader(" ".join(words[i : i + size])):
                    used[i : i + size] = [True] * size
    rest.left = " ".join(word for word, gone in zip(words, used, strict=True) if not gone)


def _card(asked: Asked, phrase: str) -> bool:
    count = re.fullmatch(r"(\d+)\s*[x×]\s*(.+)|(\d{1,2})\s+(.*[a-z].*|\d{4}s?)", phrase, re.IGNORECASE)
    name = (count[2] or count[4]) if count else phrase
    found = gpus.candidates(name) or (gpus.candidates(name[:-1]) if name.lower().endswith("s") else ())
    if not found or (name.isdigit() and len(name) < 4):
        return False
    asked.put(asked.wish, "gpus", tuple(gpu.id for gpu in found), phrase)
    if count:
        asked.put(asked.wish, "n_gpus", int(count[1] or count[3]), phrase)
    return True


def _known(asked: Asked, phrase: str, sellers: dict[str, str], frameworks: set[str]) -> bool:
    lowered = phrase.lower()
    if lowered in sellers:
        asked.put(asked.wish, "providers", (sellers[lowered],), phrase)
    elif lowered in frameworks:
        asked.put(asked.strategy, "framework", stacks.get(lowered).framework, phrase)
    else:
        return False
    return True


def _model(asked: Asked, name: str, said: str) -> None:
    if asked.model and asked.model != name:
        raise InvalidInput(f"two models are named: {asked.model} and {name}", expected="one of them")
    asked.model = name
    asked.understood.append(f"{said}: model {name}")


def _named_model(asked: Asked, phrase: str) -> bool:
    """A model by words of its name (llama 3.1 8b) or by its size alone; others that fit are told."""
    wanted = _name_words(phrase)
    found = [id for id in models.ids() if wanted <= _name_words(id)]
    if not wanted or not found:
        return False
    chosen, *others = sorted(found, key=_usual)
    _model(asked, chosen, phrase)
    if others:
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        asked.understood[-1] += f" (also {', '.join(others[:3])}{more})"
    return True


def _name_words(name: str) -> set[str]:
    """Words of a model's name: 'Qwen/Qwen2.5-7B' has qwen, qwen2.5, 2.5 and 7b."""
    words = set(re.findall(r"[a-z\d.]+", name.lower()))
    return words | {
        part for word in words if (joined := re.fullmatch(r"([a-z]+)(\d[\d.]*)", word)) for part in joined.groups()
    }


def _usual(id: str) -> tuple[int, bool, int, str]:
    rank = next((i for i, start in enumerate(USUAL) if id.startswith(start)), len(USUAL))
    tuned = bool(re.search(r"instruct|chat|-it\b|gptq|awq|class|config|distill|bnb|coder", id, re.IGNORECASE))
    return (rank, tuned, len(id), id)
