"""The OpenAPI document holds: generated requests, right and wrong, get no 5xx and no answer outside its schema."""

import os
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.openapi import from_asgi
from schemathesis.specs.openapi.checks import positive_data_acceptance

from perrun.facts import models
from perrun.surfaces.answers import VERBS
from rest import Client

APP = Client().app
SCHEMA = from_asgi("/openapi.json", APP)
FEW = settings(
    max_examples=int(os.environ.get("PERRUN_EXAMPLES", "4")),
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
NAMES = models.ids()[::40]
CARDS = ("H100 SXM", "L40S", "RTX 4090", "A100-SXM4-80GB", "B200", "T4")


@pytest.fixture(autouse=True, scope="module")
def _own_book(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERRUN_DATA_DIR", str(tmp_path_factory.mktemp("data")))
        yield


# What a schema cannot say is refused all the same: a model that sees 1024 tokens takes no sequence of 2048.
# So `positive_data_acceptance` is left out.


def known(body: Any) -> Any:
    """Generated names mean nothing: where there is a name, one that does, so that questions reach the laws."""
    if isinstance(body, dict):
        if isinstance(body.get("model"), str):
            body["model"] = NAMES[len(body["model"]) % len(NAMES)]
        for place in (body, body.get("rig")):
            for name in ("gpu", "gpu_a", "gpu_b"):
                if isinstance(place, dict) and isinstance(place.get(name), str):
                    place[name] = CARDS[len(place[name]) % len(CARDS)]
    return body


@SCHEMA.parametrize()
@FEW
def test_generated_requests_keep_the_document(case: schemathesis.Case) -> None:
    case.call_and_validate(excluded_checks=[positive_data_acceptance])


@SCHEMA.include(method="POST").parametrize()
@FEW
def test_generated_requests_about_known_models_keep_the_document(case: schemathesis.Case) -> None:
    case.body = known(case.body)
    case.call_and_validate(excluded_checks=[positive_data_acceptance])


def test_the_document_has_every_verb_with_its_types() -> None:
    document = Client().get("/openapi.json").json()
    for verb in VERBS:
        route = document["paths"][f"/v1/{verb.path or verb.name}"]["get" if verb.reads else "post"]
        assert route["operationId"] == verb.name
        assert route["responses"]["200"]["content"]["application/json"]["schema"]
        assert route["responses"]["422"]["content"]["application/json"]["schema"]["$ref"].endswith("/ErrorSaid")
        if not verb.reads:
            body = route["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
            assert document["components"]["schemas"][body]["additionalProperties"] is False
