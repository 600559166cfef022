"""config.json files from disk or from the hub, with a cache that remembers when each was fetched."""

import json
import os
import re
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from perrun.errors import InvalidInput, PerrunError, Unavailable, UnknownName, UnsupportedModel

if TYPE_CHECKING:
    import httpx

_DEFAULT_ENDPOINT = "https://huggingface.co"
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_CACHE_DAYS = 30  # configs of published models hardly change; an older copy still serves when the hub is out of reach
_A_FILE = "pass a config.json file, or its folder, instead of the id"


def _parse(text: str, where: str) -> dict[str, Any]:
    try:
        config: Any = json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"{where} is not JSON: {error}", expected="a Hugging Face config.json") from None
    if not isinstance(config, dict):
        raise InvalidInput(f"{where} is a JSON {type(config).__name__}", expected="an object of config.json keys")
    return cast("dict[str, Any]", config)


def read(path: Path) -> dict[str, Any]:
    """The config of a file, or of the config.json in a folder. Raises InvalidInput when it cannot be read."""
    file = path / "config.json" if path.is_dir() else path
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise InvalidInput(
            f"cannot read {file}: {reason}", expected="a config.json, or a folder that holds one"
        ) from None
    return _parse(text, str(file))


def is_hub_id(name: str) -> bool:
    """Whether a name is spelled as the hub spells ids: owner/name."""
    return _HUB_ID.fullmatch(name) is not None


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", _DEFAULT_ENDPOINT).rstrip("/")


def _cache_file(id: str, endpoint: str) -> Path:
    from platformdirs import user_cache_path

    host = re.sub(r"\W+", "-", endpoint.rsplit("://", maxsplit=1)[-1])
    return user_cache_path("perrun") / "configs" / host / f"{id.replace('/', '--')}.json"


def _cached(file: Path) -> tuple[dict[str, Any], date] | None:
    """What the cache holds of a config, and when it was fetched; None when nothing, or nothing readable."""
    try:
        entry: Any = json.loads(file.read_text(encoding="utf-8"))
        return entry["config"], date.fromisoformat(entry["fetched"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _store(file: Path, config: dict[str, Any], today: date) -> None:
    """Best effort: a read-only home only costs another download."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps({"fetched": today.isoformat(), "config": config}), encoding="utf-8")
        part.replace(file)
    except OSError:
        return


def _refusal(id: str, response: "httpx.Response", near: str) -> PerrunError:
    """The error for an answer other than 200, with the way out."""
    code = response.headers.get("X-Error-Code", "")
    if response.status_code in (401, 403) and code != "RepoNotFound":
        page = f"{_endpoint()}/{id}"
        has_token = bool(os.environ.get("HF_TOKEN"))
        what = "your HF_TOKEN may not read it" if has_token else "no HF_TOKEN is set"
        return Unavailable(
            f"{id} is gated or private on the hub ({what})",
            hint=f"accept the licence at {page} and set HF_TOKEN, or {_A_FILE}",
        )
    if code == "EntryNotFound":
        return UnsupportedModel(f"{id} has no config.json on the hub", hint="use the id of the original weights")
    if response.status_code in (401, 404):
        return UnknownName(f"{id} is not on the hub", hint=f"{near}{_A_FILE}")
    return Unavailable(f"the hub answered {response.status_code} for {id}", hint=f"try again later, or {_A_FILE}")


def _download(id: str, endpoint: str, near: str) -> dict[str, Any]:
    import httpx

    if os.environ.get("HF_HUB_OFFLINE", "0").upper() in ("1", "ON", "YES", "TRUE"):
        raise Unavailable(f"{id} is not in the table of models and HF_HUB_OFFLINE is set", hint=near + _A_FILE)
    token = os.environ.get("HF_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"{endpoint}/{id}/resolve/main/config.json"
    try:
        response = httpx.get(url, headers=headers, follow_redirects=True, timeout=10)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Unavailable(
            f"{id} is not in the table of models and the hub ({endpoint}) cannot be reached: {type(error).__name__}",
            hint=near + _A_FILE,
        ) from None
    if response.status_code != 200:
        raise _refusal(id, response, near)
    return _parse(response.text, url)


def fetch(id: str, nearest: list[str]) -> tuple[dict[str, Any], str]:
    """The config of a hub id and its source (address and date); `nearest` are known ids to suggest.

    A copy younger than 30 days is taken from the cache; an older one only when the hub cannot be reached.
    HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE are respected. Raises Unavailable when the model is gated or the hub out
    of reach, UnknownName when the hub has no such model, UnsupportedModel when it has no config.json.
    """
    endpoint, today = _endpoint(), date.today()
    file = _cache_file(id, endpoint)
    cached = _cached(file)
    near = f"did you mean {', '.join(nearest)}? Otherwise " if nearest else ""
    if cached is None or today - cached[1] > timedelta(days=_CACHE_DAYS):
        try:
            config = _download(id, endpoint, near)
            _store(file, config, today)
            cached = config, today
        except Unavailable:
            if cached is None:
                raise
    return cached[0], f"{endpoint}/{id}/resolve/main/config.json, fetched {cached[1].isoformat()}"
