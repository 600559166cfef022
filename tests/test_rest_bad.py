"""Bad input: one error shape with 4xx for every malformed body, and nothing that is sent reaches a path or shell."""

import builtins
import json
import os
import pathlib
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from perrun.surfaces.rest import Settings, answering
from perrun.surfaces.rest.errors import MOST_SAID
from rest import Client, served

CONFIGS = Path(__file__).parent / "data" / "configs"
CONFIG = json.loads((CONFIGS / "Qwen__Qwen3-0.6B.json").read_text())
LLAMA = "meta-llama/Llama-3.1-8B"
JSON = {"Content-Type": "application/json"}
SHAPE = {"error", "what", "expected", "hint"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERRUN_DATA_DIR", str(tmp_path_factory.mktemp("data")))
        yield Client()


def refused(answer: httpx.Response, *status: int) -> dict[str, str]:
    assert answer.status_code in (status or range(400, 500)), answer.text[:300]
    assert answer.headers["content-type"] == "application/json"
    said = answer.json()
    assert set(said) == SHAPE
    assert said["what"]
    assert "Traceback" not in answer.text
    return said


BODIES: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"{model: 1}",
    "cut off": b'{"model": "x"',
    "two": b'{"model": "a"} {}',
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"model":' * 50_000 + b"1" + b"}" * 50_000,
    "no UTF-8": b'{"model": "\xff\xfe"}',
    "half a surrogate pair": b'{"model": "\\ud800"}',
    "half a pair as key": b'{"\\ud800": 1, "model": "x"}',
    "a byte of 0": b'{"model": "a\\u0000b"}',
    "a long number": b'{"model": "x", "limit": ' + b"9" * 5000 + b"}",
    "NaN": b'{"model": "x", "budget_usd": NaN}',
    "infinity": b'{"model": "x", "budget_usd": Infinity}',
    "1e999": b'{"model": "x", "budget_usd": 1e999}',
    "text for a number": b'{"model": "x", "limit": "5"}',
    "true for a number": b'{"model": "x", "limit": true}',
    "an unknown field": b'{"model": "x", "prices": "/etc/passwd"}',
    "an unknown field of the job": b'{"model": "x", "job": {"model": "/etc/passwd"}}',
    "a list for a model": b'{"model": ["x"]}',
    "an XML": b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("verb", ["plan", "fit", "compare", "ask"])
def test_a_malformed_body_gets_the_one_shape(client: Client, verb: str, body: bytes) -> None:
    refused(client.ask("POST", f"/v1/{verb}", content=body, headers=JSON), 400, 404, 422)


HUGE: list[tuple[str, dict[str, Any]]] = [
    ("plan", {"limit": 501}),
    ("plan", {"limit": 0}),
    ("plan", {"gpus": ["H100"] * 51}),
    ("plan", {"gpus": ["H" * 201]}),
    ("plan", {"max_gpus": 10**9}),
    ("plan", {"job": {"examples": 10**13}}),
    ("plan", {"job": {"longest_example": 10**400}}),
    ("plan", {"job": {"epochs": 5e-324}}),
    ("plan", {"job": {"lora_targets": "q_proj," * 1000}}),
    ("plan", {"strategy": {"micro_batch": 10**30}}),
    ("plan", {"strategy": {"tp": 10**9}}),
    ("fit", {"rigs": ["H100"] * 41}),
    ("fit", {"rigs": [" " * 150 + "on"]}),
    ("fit", {"rigs": ["99999999999999999999999x H100 SXM"]}),
    ("estimate", {"rig": {"gpu": "L40S", "n_gpus": 10**7}}),
    ("estimate", {"rig": {"gpu": "L40S", "power_limit_w": 1e-320}}),
    ("estimate", {"rig": {"gpu": "L40S", "usable_gib": 1e308}}),
]


@pytest.mark.parametrize(("verb", "more"), HUGE, ids=[f"{i} {next(iter(more))}" for i, (_, more) in enumerate(HUGE)])
def test_what_is_too_much_is_refused_at_once(client: Client, verb: str, more: dict[str, Any]) -> None:
    started = time.perf_counter()
    body = json.dumps({"model": LLAMA, **more})
    refused(client.ask("POST", f"/v1/{verb}", content=body, headers=JSON), 400, 404, 422)
    assert time.perf_counter() - started < 2.0


def test_a_long_question_is_answered_or_refused_soon(client: Client) -> None:
    for text in ("1" * 240, "a " * 120, "1,1" * 80, "under $" * 34, "8x " * 80, " " * 239 + "x", "é" * 240):
        started = time.perf_counter()
        refused(client.post("/v1/ask", {"text": text}), 404, 409, 422)
        assert time.perf_counter() - started < 4.0, text


STRANGE_CONFIGS: dict[str, dict[str, Any]] = {
    "empty": {},
    "text for a number": {**CONFIG, "hidden_size": "1024"},
    "negative": {**CONFIG, "num_hidden_layers": -1},
    "huge": {**CONFIG, "num_hidden_layers": 10**9},
    "no family": {**CONFIG, "model_type": "../../etc/passwd", "architectures": ["x"]},
    "a list": {**CONFIG, "model_type": ["llama"]},
    "too large": {**CONFIG, "note": "x" * 300_000},
    "a text for a section": {**CONFIG, "quantization_config": "x"},
}


@pytest.mark.parametrize("config", STRANGE_CONFIGS.values(), ids=STRANGE_CONFIGS)
def test_a_strange_config_is_refused(client: Client, config: dict[str, Any]) -> None:
    refused(client.post("/v1/estimate", {"model": config, "rig": {"gpu": "L40S"}}), 422)


PATHS = (
    "/etc/passwd",
    "../../../../etc/passwd",
    "..\\..\\windows\\win.ini",
    "file:///etc/passwd",
    "http://169.254.169.254/latest/meta-data",
    "~/.ssh/id_rsa",
    "/dev/zero",
    "/proc/self/environ",
    str(CONFIGS / "Qwen__Qwen3-0.6B.json"),
    str(CONFIGS),
    "secret/model",
    "nobody/no-such-model",
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned",
    "x\r\nSet-Cookie: a=b",
    "{{7*7}}",
    "${7*7}",
    "<script>alert(1)</script>",
    "%2e%2e%2fetc%2fpasswd",
    "' OR 1=1 --",
)


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every name that is opened, looked at, run or resolved while a request is answered."""
    seen: list[str] = []

    def spy(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def spied(*given: Any, **more: Any) -> Any:
            seen.extend(str(one) for one in given)
            return real(*given, **more)

        monkeypatch.setattr(owner, name, spied)

    for owner, names in (
        (builtins, ("open",)),
        (os, ("stat", "lstat", "open", "listdir", "scandir", "system")),
        (pathlib.Path, ("is_file", "is_dir", "exists", "read_text", "open", "stat")),
        (subprocess, ("Popen", "run")),
        (socket, ("getaddrinfo", "create_connection")),
    ):
        for name in names:
            spy(owner, name)
    return seen


def _everywhere(text: str) -> list[tuple[str, dict[str, Any]]]:
    rig = {"gpu": "L40S"}
    return [
        ("plan", {"model": text}),
        ("plan", {"model": LLAMA, "gpus": [text]}),
        ("plan", {"model": LLAMA, "providers": [text]}),
        ("plan", {"model": LLAMA, "regions": [text]}),
        ("plan", {"model": LLAMA, "job": {"lora_targets": text}}),
        ("plan", {"model": LLAMA, "strategy": {"framework": text}}),
        ("estimate", {"model": text, "rig": rig}),
        ("estimate", {"model": LLAMA, "rig": {"gpu": text}}),
        ("estimate", {"model": {**CONFIG, "model_type": text}, "rig": rig}),
        ("largest", {"model": text, "rig": rig, "what": "rank"}),
        ("fit", {"model": text}),
        ("fit", {"model": LLAMA, "rigs": [text]}),
        ("compare", {"model": text, "gpu_a": "L40S", "gpu_b": "L40S"}),
        ("compare", {"model": LLAMA, "gpu_a": text, "gpu_b": "L40S"}),
        ("compare", {"model": LLAMA, "gpu_a": "L40S", "gpu_b": "L40S", "provider": text}),
        ("ask", {"text": text}),
        ("ask", {"text": f"{text} qlora"}),
    ]


@pytest.mark.parametrize("text", PATHS)
def test_nothing_a_client_sends_reaches_disk_network_or_shell(
    client: Client, touched: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "secret" / "model").mkdir(parents=True)
    (tmp_path / "secret" / "model" / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)
    touched.clear()
    for verb, body in _everywhere(text):
        answer = client.post(f"/v1/{verb}", body)
        if not isinstance(body.get("model"), dict):  # a config of unknown family may be read as Llama-like
            refused(answer, 404, 409, 422)
        assert answer.status_code < 500
        assert "set-cookie" not in answer.headers
    for query in ("gpu", "provider", "region", "instance", "term", "as_of"):
        for path in ("/v1/prices", "/v1/prices/market"):
            refused(client.get(path, params={query: text}), 404, 409, 422)
    refused(client.get("/v1/gpus", params={"name": text}), 404)
    refused(client.get("/v1/models", params={"filter": text}), 404)
    refused(client.get("/v1/schema", params={"name": text}), 404)
    assert [one for one in touched if text in one] == []
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    "path", ["/v1/../../etc/passwd", "/v1/plan/../../x", "/%2e%2e/etc/passwd", "/v1/nothing", "/static/../app.py"]
)
def test_an_unknown_path_is_404_in_the_one_shape(client: Client, path: str) -> None:
    assert refused(client.get(path), 404)["error"] == "not_found"


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/plan"), ("DELETE", "/v1/prices"), ("PUT", "/v1/plan")])
def test_a_wrong_method_is_405_and_names_the_right_one(client: Client, method: str, path: str) -> None:
    answer = client.ask(method, path)
    refused(answer, 405)
    assert answer.headers["allow"]


def test_a_form_is_no_json(client: Client) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    refused(client.ask("POST", "/v1/plan", content="model=x", headers=form), 415, 422)


def test_a_complaint_does_not_send_all_back(client: Client) -> None:
    said = refused(client.post("/v1/plan", {"model": LLAMA, "job": {"method": "x" * 100_000}}), 422)
    assert len(said["what"]) <= MOST_SAID + 3


class TestBodies:
    """Too large, too slow: refused before the rest is read."""

    def test_by_what_the_header_says_nothing_is_read(self) -> None:
        client = Client(Settings(body_bytes=1000))
        said = refused(client.ask("POST", "/v1/plan", content=b" " * 1001, headers=JSON), 413)
        assert said["error"] == "too_large"
        assert "1000" in said["expected"]

    @pytest.mark.parametrize("length", ["1073741824", "-1", "many", "9" * 30])
    def test_a_length_that_is_none(self, client: Client, length: str) -> None:
        answer = client.ask("POST", "/v1/plan", content=b"{}", headers={**JSON, "Content-Length": length})
        refused(answer, 413)

    def test_a_gigabyte_in_pieces_is_cut_off_soon(self) -> None:
        sent = 0

        async def pieces() -> Any:
            nonlocal sent
            for _ in range(1024):
                sent += 2**20
                yield b" " * 2**20

        client = Client(Settings(body_bytes=2**20))
        refused(client.ask("POST", "/v1/plan", content=pieces(), headers=JSON), 413)
        assert sent <= 2 * 2**20

    def test_a_body_that_drips_is_408(self) -> None:
        import asyncio

        async def drops() -> Any:
            for _ in range(100):
                await asyncio.sleep(0.05)
                yield b" "

        client = Client(Settings(body_s=0.2))
        started = time.perf_counter()
        refused(client.ask("POST", "/v1/plan", content=drops(), headers=JSON), 408)
        assert time.perf_counter() - started < 2.0


def _slow_verb(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(answering, "as_json", lambda _: time.sleep(seconds) or b"{}")


def test_an_answer_that_takes_too_long_is_503(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(Settings(answer_s=0.1))
    _slow_verb(monkeypatch, 0.4)
    answer = client.post("/v1/estimate", {"model": LLAMA, "rig": {"gpu": "L40S"}})
    assert refused(answer, 503)["error"] == "busy"
    assert answer.headers["retry-after"] == "1"


def test_more_questions_than_may_wait_are_503_and_the_others_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    client = Client(Settings(threads=1, waiting=2))
    _slow_verb(monkeypatch, 0.1)

    async def many() -> list[int]:
        transport = httpx.ASGITransport(app=client.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            bodies = [{"model": LLAMA, "rig": {"gpu": "L40S"}, "job": {"lora_rank": n}} for n in range(1, 9)]
            answers = await asyncio.gather(*(http.post("/v1/estimate", json=body) for body in bodies))
            return sorted(answer.status_code for answer in answers)

    assert asyncio.run(many()) == [200] * 3 + [503] * 5


def test_what_perrun_does_wrong_itself_is_500_without_its_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> bytes:
        raise RuntimeError("/secret/path")

    monkeypatch.setattr(answering, "as_json", broken)
    answer = Client().post("/v1/estimate", {"model": LLAMA, "rig": {"gpu": "L40S"}})
    assert refused(answer, 500)["error"] == "internal"
    assert "secret" not in answer.text


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = str(tmp_path_factory.mktemp("data"))
    with served("--max-body", "4", "--timeout", "15", PERRUN_DATA_DIR=folder, PERRUN_API_KEY="secret") as found:
        yield found


class TestServer:
    """A real server: slow clients, its log, and how it stops."""

    def test_it_answers_and_logs_one_json_line_without_what_was_sent(self, server: Any) -> None:
        address, _, lines = server
        question = {"model": LLAMA, "limit": 1}
        answer = httpx.post(f"{address}/v1/plan", json=question, headers={"X-API-Key": "my-own-key"})
        assert answer.status_code == 200
        httpx.get(f"{address}/v1/x%0Aforged%20line")
        time.sleep(0.2)
        logged = [json.loads(line) for line in lines if line.startswith("{")]
        mine = next(one for one in logged if one.get("id") == answer.headers["x-request-id"])
        assert (mine["what"], mine["route"], mine["status"]) == ("request", "/v1/plan", 200)
        assert mine["ms"] > 0
        assert "my-own-key" not in "".join(lines)
        assert LLAMA not in "".join(lines)
        assert not any(line.startswith("forged") for line in lines)

    def test_headers_that_never_end_close_the_connection(self, server: Any) -> None:
        from perrun.surfaces.rest.patient import HEADERS_S

        host, port = server[0].removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=HEADERS_S + 5) as slow:
            slow.sendall(b"POST /v1/plan HTTP/1.1\r\nHost: x\r\n")
            started = time.perf_counter()
            assert slow.recv(1000) == b""
            assert time.perf_counter() - started > HEADERS_S / 2
        assert httpx.get(f"{server[0]}/health").status_code == 200

    @pytest.mark.parametrize("start", [b"\x16\x03\x01\x02\x00", b"GET /nothing HTTP/9.9\r\n\r\n", b"A" * 100_000])
    def test_what_is_no_http_does_no_harm(self, server: Any, start: bytes) -> None:
        host, port = server[0].removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=5) as other:
            other.sendall(start)
            other.shutdown(socket.SHUT_WR)
            other.settimeout(15)
            first = other.recv(100)
            assert first == b"" or first.startswith(b"HTTP/1.1 4")
        assert httpx.get(f"{server[0]}/health").status_code == 200

    def test_a_large_body_is_refused_by_a_real_server_too(self, server: Any) -> None:
        refused(httpx.post(f"{server[0]}/v1/plan", content=b" " * 5000, headers=JSON), 413)


def test_a_stop_lets_the_running_request_end(tmp_path: Path) -> None:
    import threading

    with served(PERRUN_DATA_DIR=str(tmp_path)) as (address, process, _):
        got: list[int] = []

        def ask() -> None:
            body = {"model": LLAMA, "limit": 500, "max_gpus": 4096, "job": {"global_batch": 65536}}
            got.append(httpx.post(f"{address}/v1/plan", json=body, timeout=60).status_code)

        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(0.15)
        process.terminate()
        asking.join(60)
        assert process.wait(30) == 0
        assert got == [200]


def test_several_workers_answer_over_one_book_and_count_together(tmp_path: Path) -> None:
    import re

    with served("--workers", "2", PERRUN_DATA_DIR=str(tmp_path)) as (address, process, _):
        for _ in range(40):
            try:
                httpx.get(f"{address}/health", timeout=10).raise_for_status()
                break
            except httpx.TransportError:
                time.sleep(0.5)
        for _ in range(12):  # a connection each: the workers share them
            assert httpx.get(f"{address}/v1/prices?gpu=L40S").status_code == 200
        text = httpx.get(f"{address}/metrics").text
        found = re.search(r'perrun_requests_total\{method="GET",route="/v1/prices",status="200"\} ([\d.]+)', text)
        assert found is not None, text
        assert float(found[1]) == 12
        process.terminate()
        assert process.wait(30) == 0
