"""Models, limits, metrics and the OpenAPI document: what the service says of itself is true."""

import re

from contracts.deliveries import Attempted, PlannedDelivery, Settlement
from services.ingest.app import ROUTES
from services.ingest.edge.problems import CATALOGUE
from services.ingest.service import IngestService
from tests.ingest.api import Api


async def test_models_are_described_without_the_inside(api: Api) -> None:
    listed = await api.get("/v1/models")
    one = await api.get("/v1/models/draw@1")

    assert [model["name"] for model in listed.body["data"]] == ["draw", "echo", "edit"]
    assert one.body["inputs"]["properties"]["steps"]["maximum"] == 150
    assert "draw.py" not in listed.raw.decode()
    assert (await api.get("/v1/models/none")).code == "model_not_found"


async def test_limits_show_what_is_in_use(api: Api) -> None:
    await api.job()

    shown = (await api.get("/v1/limits")).body

    assert shown["limits"]["queuedJobs"] == 10_000
    assert shown["use"]["default"]["queuedJobs"] == 1
    assert shown["use"]["default"]["queuedBytes"] > 0


async def test_every_route_is_in_the_document_and_nothing_else(api: Api) -> None:
    document = (await api.get("/openapi.json")).body
    served = {(route.method.lower(), route.path) for route in api.service.app[ROUTES]}
    registered = {
        (route.method.lower(), route.resource.canonical)
        for route in api.service.app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }

    described = {(method, path) for path, item in document["paths"].items() for method in item}

    assert described == served == registered
    assert document["openapi"].startswith("3.1")


async def test_every_reference_in_the_document_leads_somewhere(api: Api) -> None:
    answer = await api.get("/openapi.json")
    names = set(re.findall(r'"#/components/schemas/([^"]+)"', answer.raw.decode()))

    assert names <= set(answer.body["components"]["schemas"])
    submitted = answer.body["components"]["schemas"]["GenerationJobData"]
    assert {"userId", "prompt", "model", "webhookUrl", "input"} <= set(submitted["properties"])
    assert submitted["additionalProperties"] is False


async def test_the_document_says_which_scope_and_which_problems(api: Api) -> None:
    submit = (await api.get("/openapi.json")).body["paths"]["/v1/jobs"]["post"]

    assert submit["x-scope"] == "jobs:write"
    assert set(submit["responses"]) >= {"200", "201", "202", "400", "401", "403", "413", "415", "422", "429", "503"}
    assert "quota_exceeded" in submit["responses"]["429"]["description"]


def test_the_catalogue_has_a_status_and_a_pause_where_the_caller_should_wait() -> None:
    for code, kind in CATALOGUE.items():
        assert re.fullmatch(r"[a-z_]+", code)
        assert 400 <= kind.status <= 599
        assert (kind.retry_after_s is not None) == (kind.status in (429, 503)), code


async def test_metrics_have_bounded_labels(api: Api) -> None:
    job_id = await api.job()
    await api.get(f"/v1/jobs/{job_id}")
    await api.get("/v1/no/such/path")

    text = (await api.get("/metrics")).raw.decode()

    assert 'headrace_http_requests_total{method="GET",route="/v1/jobs/{id}",status="200"} 1.0' in text
    assert 'route="unmatched",status="404"' in text
    assert 'headrace_jobs_created_total{model="draw@1",priority="normal",tenant_class="standard"} 1.0' in text
    assert job_id not in text
    assert '"t_a"' not in text


async def test_metrics_say_how_webhooks_do_and_what_waits_for_too_long(api: Api) -> None:
    """Field case 106: a watchdog counts deliveries whose due time passed more than a minute ago."""
    late = PlannedDelivery("dlv_1", {"body": "{}"}, "anon1", "t_a", "job_1", due_ms=1000)
    await api.store.deliveries.plan("default", "", [late], [])
    failed = Attempted(succeeded=False, outcome="5xx", took_ms=3)
    settlement = Settlement("dlv_1", "anon1", 1, {}, failed, next_due_ms=2000)
    assert (await api.store.deliveries.settle("default", settlement)).applied

    text = (await api.get("/metrics")).raw.decode()

    assert 'headrace_webhook_overdue{circuit="closed",pool="default"} 1.0' in text
    assert 'headrace_webhook_backlog{pool="default"} 1.0' in text
    assert 'headrace_webhook_attempts_total{outcome="5xx",pool="default",result="failed"} 1.0' in text


async def test_liveness_and_readiness_need_no_key(api: Api) -> None:
    assert (await api.get("/healthz", key="")).body == {"status": "alive"}
    assert (await api.get("/readyz", key="")).status in (200, 503)


async def test_processes_that_all_follow_the_log_count_each_job_once_between_them(api: Api) -> None:
    """Field case 75: with three replicas that each are told of every event, the sum over their metrics is the truth."""
    others = [IngestService(api.service.context.settings) for _ in range(2)]
    for service in others:
        await service.start()
        await service.context.opened.wait()
    apis = [api, *(Api(service, api.session, api.key) for service in others)]
    headers, counted = {"Authorization": f"Bearer {api.key}"}, 0.0
    try:
        streams = [await api.session.get(each.url + "/v1/stream", headers=headers) for each in apis]
        jobs = [await apis[number % 3].job() for number in range(9)]
        for stream in streams:
            told = b""
            while not all(job_id.encode() in told for job_id in jobs):
                told += await stream.content.readany()
            stream.close()
        for each in apis:
            lines = (await each.get("/metrics")).raw.decode().splitlines()
            counted += sum(float(line.split()[-1]) for line in lines if line.startswith("headrace_jobs_created_total{"))
    finally:
        for service in others:
            await service.stop()

    assert counted == 9
