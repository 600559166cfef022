"""What a server allows, by PERRUN_SERVE_* and PERRUN_API_KEY: workers are processes of their own and read it again."""

import os
from dataclasses import asdict, dataclass, field, fields

PREFIX = "PERRUN_SERVE_"
API_KEY = "PERRUN_API_KEY"


@dataclass(frozen=True, slots=True)
class Settings:
    """body_bytes, import_bytes: largest body of a question and of a price file; body_s: to send it [s]; answer_s: to
    answer [s]; threads: questions computed at once by one worker; waiting: questions that may wait for a thread;
    kept: answers kept for who asks the same again; cors: origins that may ask from a browser; api_key: opens writes;
    refresh_s: how often the price sources are looked at, and asked when they are over a week old [s], 0: never.
    """

    body_bytes: int = 512 * 1024
    import_bytes: int = 4 * 1024 * 1024
    body_s: float = 10.0
    answer_s: float = 20.0
    threads: int = 2
    waiting: int = 200
    kept: int = 64
    cors: tuple[str, ...] = ()
    refresh_s: float = 0.0
    api_key: str = field(default="", repr=False)

    def to_environment(self) -> None:
        """Leaves the settings, the key excepted, where workers find them."""
        for name, value in asdict(self).items():
            if name != "api_key":
                os.environ[PREFIX + name.upper()] = " ".join(value) if name == "cors" else str(value)

    @staticmethod
    def from_environment() -> "Settings":
        found: dict[str, object] = {"api_key": os.environ.get(API_KEY, "")}
        for one in fields(Settings):
            text = os.environ.get(PREFIX + one.name.upper())
            if text is not None and one.name != "api_key":
                found[one.name] = tuple(text.split()) if one.name == "cors" else _number(text)
        return Settings(**found)  # type: ignore[arg-type]


def _number(text: str) -> float | int:
    return int(text) if text.isdigit() else float(text)
