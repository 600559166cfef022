"""The form: what stands in the address becomes questions to the verbs, so that a link reproduces the view."""

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from perrun.errors import InvalidInput
from perrun.surfaces.requests import FitAsked, PlanAsked

METHODS = ("qlora", "lora", "full", "lora-int8", "dora", "qdora")
SORTS = ("usd", "hours", "fit")


class Form(BaseModel):
    """Fields of the page, as the browser sends them: text, and '' for what was left out."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    model: str = Field(default="", max_length=200)
    config: str = Field(default="", max_length=12_000)
    method: str = Field(default="qlora", max_length=20)
    examples: int = 1000
    tokens: int = 1024
    epochs: float = 1
    budget: float | None = None
    deadline: float | None = None
    cards: str = Field(default="", max_length=1000)
    sort: Literal["usd", "hours", "fit"] = "usd"
    lang: str = Field(default="", max_length=5)

    @field_validator("*", mode="before")
    @classmethod
    def _left_out(cls, value: Any, info: Any) -> Any:
        return cls.model_fields[info.field_name].default if value == "" else value

    @property
    def asked(self) -> bool:
        """Whether there is a question yet."""
        return bool(self.model or self.config)

    def _common(self) -> dict[str, Any]:
        job = {
            "method": self.method,
            "examples": self.examples,
            "tokens_per_example": self.tokens,
            "epochs": self.epochs,
        }
        return {"model": self._config() if self.config else self.model, "job": job}

    def _config(self) -> dict[str, Any]:
        """The pasted config.json. Raises InvalidInput."""
        try:
            found = json.loads(self.config)
        except (ValueError, RecursionError):
            raise InvalidInput("the config.json is no JSON", expected="the whole text of the file") from None
        if not isinstance(found, dict):
            raise InvalidInput("the config.json is no object", expected="the whole text of the file")
        return found  # type: ignore[return-value]

    def plan(self) -> PlanAsked:
        wishes = {"budget_usd": self.budget, "deadline_h": self.deadline, "sort": self.sort}
        cards = [name.strip() for name in self.cards.split(",") if name.strip()]
        return PlanAsked.model_validate(self._common() | wishes | {"gpus": cards})

    def fit(self) -> FitAsked:
        return FitAsked.model_validate(self._common())
