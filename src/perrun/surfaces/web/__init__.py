"""The page at `/`: a form that answers without JavaScript, and at once with it. The address holds the whole view."""

import json
from functools import cache, partial
from importlib import resources
from typing import Any
from urllib.parse import urlencode

from fastapi import FastAPI, Request, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import ValidationError
from starlette.responses import HTMLResponse

from perrun import __version__, estimator
from perrun.errors import PerrunError
from perrun.facts import gpus, models
from perrun.surfaces.answers import VERBS
from perrun.surfaces.cli import show
from perrun.surfaces.cli.plan import FIGURES
from perrun.surfaces.rest import errors
from perrun.surfaces.rest.answering import Answering, Busy
from perrun.surfaces.web import charts, words
from perrun.surfaces.web.form import METHODS, SORTS, Form
from perrun.terms import Rig

BY_NAME = {verb.name: verb for verb in VERBS}
STATIC = {"htmx.min.js": "text/javascript", "style.css": "text/css", "icon.svg": "image/svg+xml"}
# Nothing from elsewhere, nothing inline: what is put into the page by a mistake still cannot run.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SAFE = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin", "Vary": "Accept-Language"}


def add(app: FastAPI, answering: Answering) -> None:
    """The page, its files, and the answer to download."""

    async def page(request: Request) -> Response:
        return await _page(answering, request)

    async def plans_csv(request: Request) -> Response:
        answer = json.loads(
            await answering.answer(BY_NAME["plan"], Form.model_validate(dict(request.query_params)).plan())
        )
        rows = [[_cell(plan, path) for path in FIGURES] for plan in answer["plans"]]
        text = show.as_csv([path.rpartition(".")[2] for path in FIGURES], rows)
        headers = {"Content-Disposition": 'attachment; filename="plans.csv"'}
        return Response(text, media_type="text/csv; charset=utf-8", headers=headers)

    async def plan_json(request: Request) -> Response:
        body = await _plan(answering, request)
        headers = {"Content-Disposition": 'attachment; filename="plan.json"'}
        return Response(body, media_type="application/json", headers=headers)

    for path, endpoint in (("/", page), ("/plans.csv", plans_csv), ("/plan.json", plan_json)):
        app.add_api_route(path, endpoint, methods=["GET"], include_in_schema=False)
    for name in STATIC:
        app.add_api_route(f"/static/{name}", _static(name), methods=["GET"], include_in_schema=False)


async def _plan(answering: Answering, request: Request) -> bytes:
    """The plan that the address asks for, as JSON."""
    return await answering.answer(BY_NAME["plan"], Form.model_validate(dict(request.query_params)).plan())


def _static(name: str) -> Any:
    body = (resources.files("perrun.surfaces.web") / name).read_bytes()

    async def file() -> Response:
        return Response(body, media_type=STATIC[name], headers={"Cache-Control": "max-age=3600"})

    return file


async def _page(answering: Answering, request: Request) -> Response:
    """The form, and below it the answer or what was wrong."""
    given = dict(request.query_params)
    language = words.chosen(given.get("lang", ""), request.headers.get("accept-language", ""))
    form, plan, fit, refusal, status = Form(), None, None, None, 200
    try:
        form = Form.model_validate(given)
        if form.asked:
            plan = json.loads(await answering.answer(BY_NAME["plan"], form.plan()))
            fit = json.loads(await answering.answer(BY_NAME["fit"], form.fit()))
    except ValidationError as error:
        refusal, status = errors.from_validation(error.errors()), 422
    except PerrunError as error:
        refusal, status = error, errors.STATUS.get(error.code, 422)
    except Busy as error:
        refusal, status = PerrunError(str(error)), 503
    body = _rendered(form, given, language, plan, fit, refusal)
    return HTMLResponse(body, status, headers={**SAFE, "Content-Language": language})


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("perrun.surfaces", "web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )


def _rendered(
    form: Form, given: dict[str, str], language: str, plan: Any, fit: Any, refusal: PerrunError | None
) -> str:
    plans: list[dict[str, Any]] = plan["plans"] if plan else []
    return (
        _environment()
        .get_template("page.html")
        .render(
            form=form,
            given={name: given.get(name, str(getattr(form, name) or "")) for name in Form.model_fields},
            address=partial(_address, given),
            language=language,
            languages=words.LANGUAGES,
            w=words.catalogue(language),
            number=partial(words.number, language=language),
            percent=partial(words.percent, language=language),
            day=partial(words.day, language=language),
            methods=METHODS,
            sorts=SORTS,
            known=models.ids(),
            plan=plan,
            fit=_matrix(fit) if fit else None,
            scatter=charts.scatter(plans),
            bars=charts.bars(plans, _usable),
            usable=_usable,
            refusal=refusal.to_dict() if refusal else None,
            version=__version__,
        )
    )


def _address(given: dict[str, str], **other: str) -> str:
    """The query that shows this view again; `other` fields replace those of the form."""
    return urlencode({name: given[name] for name in Form.model_fields if given.get(name)} | other)


def _matrix(fit: dict[str, Any]) -> dict[str, Any]:
    """Cells by rig, in the order of the answer."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for cell in fit["cells"]:
        rows.setdefault(f"{cell['rig']['n_gpus']}x {cell['rig']['gpu']}", []).append(cell)
    return {"methods": fit["methods"], "rows": rows}


def _usable(rig: dict[str, Any]) -> float:
    """Memory that one GPU of a rig has [GiB]."""
    return estimator.usable_gib(gpus.get(rig["gpu"]), Rig.model_validate(rig))


def _cell(plan: dict[str, Any], path: str) -> Any:
    found: Any = plan
    for name in path.split("."):
        found = found[name]
    return found
