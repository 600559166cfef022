"""Models from the hub, played by a server on this machine: fetched once, dated, and refused in words."""

import json
import threading
from collections.abc import Iterator
from datetime import date, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from perrun.errors import InvalidInput, Unavailable, UnknownName, UnsupportedModel
from perrun.facts import models

CONFIG = (Path(__file__).with_name("data") / "configs" / "Qwen__Qwen3-8B.json").read_text()


class Hub(BaseHTTPRequestHandler):
    """Answers by the name of the repository; remembers what was asked and with which token."""

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization")))  # type: ignore[attr-defined]
        name = self.path.split("/")[2]
        status, code, body = {
            "open": (200, "", CONFIG),
            "gated": (401, "GatedRepo", ""),
            "forbidden": (403, "", ""),
            "hidden": (401, "RepoNotFound", ""),
            "weights-only": (404, "EntryNotFound", ""),
            "page": (200, "", "<html>"),
            "busy": (503, "", ""),
            "bert": (200, "", json.dumps({"model_type": "bert", "architectures": ["BertForMaskedLM"]})),
        }.get(name, (404, "RepoNotFound", ""))
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.asked = []  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield server
    server.shutdown()
    server.server_close()


def entries(tmp_path: Path) -> list[Path]:
    return list(tmp_path.rglob("*.json"))


def test_a_model_is_fetched_once_and_says_when(hub: ThreadingHTTPServer, tmp_path: Path) -> None:
    for _ in range(2):
        model = models.get("someone/open")
        assert model.total_params == 8_190_735_360
        assert model.id == "someone/open"
        assert f"someone/open/resolve/main/config.json, fetched {date.today().isoformat()}" in model.source
    assert [path for path, _ in hub.asked] == ["/someone/open/resolve/main/config.json"]  # type: ignore[attr-defined]
    assert len(entries(tmp_path)) == 1


def test_the_token_is_sent_where_there_is_one(hub: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    models.get("someone/open")
    monkeypatch.setenv("HF_TOKEN", "secret")
    with pytest.raises(Unavailable, match="your HF_TOKEN may not read it"):
        models.get("someone/gated")
    assert [token for _, token in hub.asked] == [None, "Bearer secret"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["gated", "forbidden"])
@pytest.mark.usefixtures("hub")
def test_a_gated_model_shows_the_way_out(name: str, tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        models.get(f"someone/{name}")
    assert "no HF_TOKEN is set" in caught.value.what
    for way_out in ("accept the licence", f"/someone/{name}", "HF_TOKEN", "config.json file"):
        assert way_out in caught.value.hint
    assert not entries(tmp_path)


@pytest.mark.parametrize("id", ["meta-llama/Llama-3.1-9B", "someone/hidden"])
@pytest.mark.usefixtures("hub")
def test_a_missing_model_is_unknown(id: str) -> None:
    with pytest.raises(UnknownName) as caught:
        models.get(id)
    assert "not on the hub" in caught.value.what
    assert ("meta-llama/Llama-3.1-8B" in caught.value.hint) == ("Llama" in id)


@pytest.mark.usefixtures("hub")
def test_a_repository_without_config_says_so() -> None:
    with pytest.raises(UnsupportedModel, match=r"no config\.json"):
        models.get("someone/weights-only")


@pytest.mark.usefixtures("hub")
def test_what_is_fetched_but_no_json_or_no_language_model_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="not JSON"):
        models.get("someone/page")
    assert not entries(tmp_path)
    with pytest.raises(UnsupportedModel, match="bert"):
        models.get("someone/bert")


@pytest.mark.usefixtures("hub")
def test_a_hub_that_is_busy_or_away_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="503"):
        models.get("someone/busy")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    with pytest.raises(Unavailable) as caught:
        models.get("someone/open")
    assert "cannot be reached" in caught.value.what
    assert "config.json file" in caught.value.hint


def test_offline_means_no_call(hub: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(Unavailable, match="HF_HUB_OFFLINE"):
        models.get("someone/open")
    assert not hub.asked  # type: ignore[attr-defined]
    assert models.get("meta-llama/Llama-3.1-8B").total_params == 8_030_261_248


def _age(tmp_path: Path, days: int) -> None:
    (entry,) = entries(tmp_path)
    then = (date.today() - timedelta(days=days)).isoformat()
    entry.write_text(json.dumps({**json.loads(entry.read_text()), "fetched": then}))


def test_an_old_copy_is_fetched_again_and_serves_when_the_hub_is_away(
    hub: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    models.get("someone/open")
    _age(tmp_path, 31)
    assert date.today().isoformat() in models.get("someone/open").source
    assert len(hub.asked) == 2  # type: ignore[attr-defined]
    _age(tmp_path, 31)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert (date.today() - timedelta(days=31)).isoformat() in models.get("someone/open").source


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"fetched": "never", "config": {}}'])
def test_a_broken_cache_entry_is_fetched_again(hub: ThreadingHTTPServer, tmp_path: Path, text: str) -> None:
    models.get("someone/open")
    (entry,) = entries(tmp_path)
    entry.write_text(text)
    assert models.get("someone/open").total_params == 8_190_735_360
    assert len(hub.asked) == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["no slash here", "a/b/c", "../../etc/passwd", "owner/na me", "http://x/y"])
def test_what_is_no_hub_id_is_never_asked_of_the_hub(hub: ThreadingHTTPServer, name: str) -> None:
    with pytest.raises((UnknownName, InvalidInput)):
        models.get(name)
    assert not hub.asked  # type: ignore[attr-defined]
