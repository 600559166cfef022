"""REST: every verb a route, the same answers as Python and `--json`, ETag, gzip, health, metrics, keys."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

import perrun
from perrun.planner import SORTS
from perrun.surfaces import cli, requests
from perrun.surfaces.answers import VERBS
from perrun.surfaces.rest import Settings
from rest import Client

CONFIG = Path(__file__).parent / "data" / "configs" / "Qwen__Qwen3-0.6B.json"
LLAMA = "meta-llama/Llama-3.1-8B"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERRUN_DATA_DIR", str(tmp_path_factory.mktemp("data")))
        yield Client()


# verb, what REST is asked, the same on the command line
GRID: list[tuple[str, dict[str, Any], str]] = [
    ("plan", {"model": LLAMA}, f"plan {LLAMA}"),
    (
        "plan",
        {
            "model": "Qwen/Qwen2.5-7B-Instruct",
            "job": {"method": "qlora", "examples": 5000, "tokens_per_example": 1500, "epochs": 3, "packing": False},
            "strategy": {"framework": "axolotl"},
            "budget_usd": 50,
            "gpus": ["A100"],
            "terms": ["on-demand"],
            "sort": "hours",
            "limit": 5,
        },
        "plan Qwen/Qwen2.5-7B-Instruct --method qlora --examples 5000 --tokens 1500 --epochs 3 --no-packing "
        "--framework axolotl --budget 50 --gpu A100 --term on-demand --sort hours --limit 5",
    ),
    (
        "plan",
        {"model": LLAMA, "n_gpus": 8, "job": {"method": "full"}, "as_of": "2026-10-01", "keep_days": 2, "runs": 3},
        f"plan {LLAMA} --n-gpus 8 --method full --as-of 2026-10-01 --keep-days 2 --runs 3",
    ),
    ("estimate", {"model": LLAMA, "rig": {"gpu": "RTX 4090"}}, f"estimate {LLAMA} --gpu 'RTX 4090'"),
    (
        "estimate",
        {
            "model": LLAMA,
            "rig": {"gpu": "H100 SXM", "n_gpus": 4, "usable_gib": 70},
            "job": {"method": "full"},
            "strategy": {"sharding": "zero3", "offload": "optimizer"},
        },
        f"estimate {LLAMA} --gpu 'H100 SXM' --n-gpus 4 --usable-gib 70 --method full --sharding zero3 "
        "--offload optimizer",
    ),
    (
        "largest",
        {"model": LLAMA, "rig": {"gpu": "L40S"}, "what": "seq_len", "job": {"method": "qlora"}},
        f"estimate {LLAMA} --gpu L40S --max seq_len --method qlora",
    ),
    ("fit", {"model": LLAMA}, f"fit {LLAMA}"),
    (
        "fit",
        {"model": LLAMA, "rigs": ["8x H100 SXM", "L40S"], "job": {"seq_len": 4096}},
        f"fit {LLAMA} --rig '8x H100 SXM' --rig L40S --seq-len 4096",
    ),
    (
        "compare",
        {"model": LLAMA, "gpu_a": "A100-SXM4-80GB", "gpu_b": "H100 SXM"},
        f"compare A100-SXM4-80GB 'H100 SXM' {LLAMA}",
    ),
    (
        "compare",
        {"model": LLAMA, "gpu_a": "L40S", "gpu_b": "H100 SXM", "price_a": 0.8, "price_b": 2.5, "n_gpus": 2},
        f"compare L40S 'H100 SXM' {LLAMA} --price-a 0.8 --price-b 2.5 --n-gpus 2",
    ),
    (
        "ask",
        {"text": "70B qlora, 2000 examples of 2000 tokens, 2 epochs, under $20", "limit": 3},
        "ask '70B qlora, 2000 examples of 2000 tokens, 2 epochs, under $20' --limit 3",
    ),
    ("prices", {"gpu": ["H100"], "term": ["on-demand"]}, "prices list --gpu H100 --term on-demand"),
    ("market", {"gpu": ["L40S"]}, "prices market --gpu L40S"),
    ("history", {"gpu": ["L40S"]}, "prices history --gpu L40S"),
    ("gpus", {}, "gpus"),
    ("gpus", {"name": "l40s"}, "gpus l40s"),
    ("models", {"filter": "qwen3"}, "models qwen3"),
    ("schema", {"name": "plan"}, "schema plan"),
]


def asked(client: Client, verb: str, given: dict[str, Any]) -> httpx.Response:
    found = next(one for one in VERBS if one.name == verb)
    path = f"/v1/{found.path or found.name}"
    return client.get(path, params=given) if found.reads else client.post(path, given)


def test_the_grid_has_every_verb() -> None:
    assert {verb for verb, _, _ in GRID} == {verb.name for verb in VERBS}


@pytest.mark.parametrize(("verb", "given", "command"), GRID, ids=[f"{i} {verb}" for i, (verb, _, _) in enumerate(GRID)])
def test_rest_and_the_command_line_answer_alike(
    client: Client, capsys: pytest.CaptureFixture[str], verb: str, given: dict[str, Any], command: str
) -> None:
    import shlex

    answer = asked(client, verb, given)
    as_json = [] if verb == "schema" else ["--json"]
    assert cli.run([*shlex.split(command), *as_json]) == 0
    assert answer.status_code == 200, answer.text
    assert answer.json() == json.loads(capsys.readouterr().out)


def test_rest_and_python_answer_alike(client: Client) -> None:
    given = {"method": "qlora", "examples": 5000}
    answer = client.post("/v1/plan", {"model": LLAMA, "job": given, "limit": 5})
    assert answer.json() == json.loads(perrun.plan(LLAMA, given, limit=5).model_dump_json())


def test_a_config_given_whole_answers_as_its_file(client: Client) -> None:
    config = json.loads(CONFIG.read_text())
    answer = client.post("/v1/plan", {"model": config, "limit": 3}).json()
    by_file = json.loads(perrun.plan(str(CONFIG), limit=3).model_dump_json())
    assert answer["job"].pop("model").startswith("config.json ")
    assert by_file["job"].pop("model") == str(CONFIG)
    assert answer == by_file


def test_two_configs_are_two_models(client: Client) -> None:
    config = json.loads(CONFIG.read_text())
    rig = {"gpu": "L40S"}
    small, large = (
        client.post("/v1/estimate", {"model": {**config, "num_hidden_layers": n}, "rig": rig}).json()["memory"]
        for n in (2, 28)
    )
    assert small["lines"]["base weights"] < large["lines"]["base weights"]


def test_the_same_question_is_answered_once_while_prices_stay(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from perrun.surfaces.rest import answering

    first = client.post("/v1/plan", {"model": LLAMA, "limit": 2})
    kept = len(client.app.state.answering.kept)
    assert client.post("/v1/plan", {"limit": 2, "model": LLAMA}).content == first.content
    assert len(client.app.state.answering.kept) == kept
    monkeypatch.setattr(answering, "stamp", lambda: ("other prices",))
    client.post("/v1/plan", {"model": LLAMA, "limit": 2})
    assert len(client.app.state.answering.kept) == kept + 1


def test_kept_answers_are_bounded() -> None:
    client = Client(Settings(kept=3))
    for rank in range(1, 6):
        given = {"model": LLAMA, "rig": {"gpu": "L40S"}, "job": {"lora_rank": rank}}
        assert client.post("/v1/estimate", given).status_code == 200
    assert len(client.app.state.answering.kept) == 3


@pytest.mark.parametrize("path", ["/v1/prices", "/v1/prices/market", "/v1/prices/history?gpu=L40S"])
def test_price_data_has_an_etag(client: Client, path: str) -> None:
    first = client.get(path)
    tag = first.headers["etag"]
    again = client.get(path, headers={"If-None-Match": f'"other", {tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert client.get(path, headers={"If-None-Match": '"other"'}).status_code == 200


def test_answers_are_compressed_for_who_takes_it(client: Client) -> None:
    question = {"model": LLAMA}
    assert client.post("/v1/plan", question).headers["content-encoding"] == "gzip"
    plain = client.post("/v1/plan", question, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers


def test_health_says_the_version_and_the_day_of_the_prices(client: Client) -> None:
    from perrun import verbs

    newest = max(offer.observed_at for offer in verbs.offers()).isoformat()
    assert client.get("/health").json() == {"status": "ok", "version": perrun.__version__, "prices_as_of": newest}


def test_metrics_count_by_route_and_never_by_what_was_sent(client: Client) -> None:
    client.get("/v1/gpus?name=L40S")
    client.get("/no/such/place-1234")
    text = client.get("/metrics").text
    assert 'perrun_requests_total{method="GET",route="/v1/gpus",status="200"}' in text
    assert 'perrun_seconds_bucket{le="0.05",route="/v1/gpus"}' in text
    assert "1234" not in text


def test_cors_is_off_unless_said() -> None:
    origin = {"Origin": "https://page.example"}
    assert "access-control-allow-origin" not in Client().get("/health", headers=origin).headers
    open_to = Client(Settings(cors=("https://page.example",)))
    assert open_to.get("/health", headers=origin).headers["access-control-allow-origin"] == "https://page.example"
    other = open_to.get("/health", headers={"Origin": "https://other.example"})
    assert "access-control-allow-origin" not in other.headers


class TestWrites:
    """Imports and refreshes are for who has the key."""

    PRICES = "provider,gpu,n_gpus,usd_per_hour,observed_at,source\nours,H100-SXM-80GB,8,4,2026-11-30,contract\n"

    @pytest.fixture(autouse=True)
    def _own_book(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PERRUN_DATA_DIR", str(tmp_path))

    @pytest.mark.parametrize("path", ["/v1/prices/import?name=ours", "/v1/prices/refresh"])
    def test_without_a_key_of_the_server_there_are_none(self, path: str) -> None:
        answer = Client().post(path, {}, headers={"X-API-Key": ""})
        assert (answer.status_code, answer.json()["error"]) == (403, "forbidden")

    @pytest.mark.parametrize("key", [None, "", "wrong", "secre", "secret "])
    def test_a_wrong_key_is_refused(self, key: str | None) -> None:
        headers = {} if key is None else {"X-API-Key": key}
        answer = Client(Settings(api_key="secret")).post("/v1/prices/refresh", {}, headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (401, "no_key")

    def test_an_import_changes_the_next_plan(self) -> None:
        client = Client(Settings(api_key="secret"))
        question = {"model": LLAMA, "gpus": ["H100-SXM-80GB"], "limit": 500}
        assert "ours" not in {plan["offer"]["provider"] for plan in client.post("/v1/plan", question).json()["plans"]}
        headers = {"X-API-Key": "secret", "Content-Type": "text/csv"}
        done = client.ask("POST", "/v1/prices/import?name=our contract", content=self.PRICES, headers=headers)
        assert done.status_code == 200, done.text
        assert (done.json()["source"], done.json()["new"], done.json()["left_out"]) == ("our contract", 1, [])
        ours = [p for p in client.post("/v1/plan", question).json()["plans"] if p["offer"]["provider"] == "ours"]
        assert [plan["offer"]["usd_per_hour"] for plan in ours] == [4.0]

    @pytest.mark.parametrize("name", ["../x", "/etc/passwd", "", "a" * 65, "x\r\nSet-Cookie: a"])
    def test_the_name_of_a_source_is_no_path(self, name: str) -> None:
        client = Client(Settings(api_key="secret"))
        headers = {"X-API-Key": "secret"}
        answer = client.ask("POST", "/v1/prices/import", params={"name": name}, content=self.PRICES, headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (422, "invalid_input")

    def test_a_wrong_file_says_its_line_and_no_path_of_the_server(self) -> None:
        client = Client(Settings(api_key="secret"))
        bad = self.PRICES.replace(",4,", ",four,")
        answer = client.ask("POST", "/v1/prices/import?name=ours", content=bad, headers={"X-API-Key": "secret"})
        assert answer.status_code == 422
        assert "line 2" in answer.json()["what"]
        assert "/tmp" not in answer.text

    def test_an_unknown_source_is_named(self) -> None:
        client = Client(Settings(api_key="secret"))
        answer = client.post("/v1/prices/refresh", {"source": ["nobody"]}, headers={"X-API-Key": "secret"})
        assert (answer.status_code, answer.json()["error"]) == (404, "unknown_name")


def test_settings_reach_workers_by_the_environment_and_the_key_only_by_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    from perrun.surfaces.rest.settings import PREFIX

    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)
    before = Settings(body_bytes=1234, answer_s=1.5, cors=("https://a", "https://b"), api_key="secret")
    with monkeypatch.context() as patch:
        patch.setattr(os, "environ", dict(os.environ))
        before.to_environment()
        assert "secret" not in os.environ.values()
        os.environ["PERRUN_API_KEY"] = "secret"
        assert Settings.from_environment() == before
    assert "secret" not in repr(before)


def test_requests_and_the_planner_sort_by_the_same_keys() -> None:
    schema = requests.PlanAsked.model_json_schema()
    assert tuple(schema["properties"]["sort"]["enum"]) == SORTS
