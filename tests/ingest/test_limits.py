"""`GET /v1/limits`: limits, use and reset, from store and leader; and what ingest writes down of them at its start."""

import asyncio
from pathlib import Path

from contracts import questions as q
from contracts.events import TenantLimits
from contracts.store import keys
from services.ingest.handlers.limits import gpu_left
from services.ingest.service import IngestService
from services.ingest.views.rates import GpuLeft
from tests.ingest.api import Api, settings_for
from tests.ingest.test_explain import leading
from tests.ingest.test_pools import said

LIMITS = {"concurrency": 2, "userConcurrency": 1, "submitsPerMinute": 6, "gpuSecondsPerDay": 7_200}
MODERATED = """
[resources.moderation]
rate = 5
window_s = 1.5
[models.asks]
entry = "draw.py"
inputs = "echo.json"
vram_mib = 1
resources = { moderation = 1 }
"""


def used(question: q.Question) -> q.Answer | None:
    return q.TenantUse(running=2, gpu_ms_today=1_500) if question.kind == "use" else None


async def test_limits_are_shown_with_use_and_what_comes_back_when(api: Api) -> None:
    await api.admin("PATCH", "/admin/v1/tenants/t_a", json={"limits": LIMITS, "weight": 1.5})
    await api.job()
    async with leading(api, used):
        shown = await api.get("/v1/limits")

    body = shown.body
    assert (body["weight"], body["paused"]) == (1.5, False)
    assert body["limits"] == LIMITS | {"queuedJobs": 10_000, "queuedBytes": 1 << 30, "bodyBytes": 1 << 20}
    default, large = body["use"]["default"], body["use"]["large"]
    assert (default["queuedJobs"], default["running"], default["gpuSeconds"]) == (1, 2, 1.5)
    assert (large["queuedJobs"], large["running"], large["gpuSeconds"]) == (0, None, None)  # nobody leads it
    assert body["submits"] == {"left": 11, "refillSeconds": 0}
    assert body["budgetResetsAt"].endswith("T00:00:00.000Z")
    assert shown.headers["ratelimit-policy"] == '"submit";q=6;w=60, "gpu";q=7200;qu="gpu-seconds";w=86400'
    assert shown.headers["ratelimit"].startswith('"submit";r=6;t=0, "gpu";r=7198;t=')


def test_the_pool_with_least_left_is_told_of_since_each_has_the_budget_by_itself() -> None:
    limits, used = TenantLimits(gpu_seconds_per_day=60), [q.TenantUse(0, 1_500), None, q.TenantUse(0, 2_500)]

    assert gpu_left(limits, used, 999) == GpuLeft(left_s=57, reset_s=1)
    assert gpu_left(limits, [q.TenantUse(0, 99_000)], 1_000) == GpuLeft(left_s=0, reset_s=1)
    assert gpu_left(limits, [None], 999) is None


async def test_looking_at_the_limits_costs_no_submit(api: Api) -> None:
    key = await api.tenant("t_b", submitsPerMinute=1)

    looked = [(await api.get("/v1/limits", key=key)).body["submits"]["left"] for _ in range(3)]

    assert looked == [2, 2, 2]
    assert await api.store.client.exists(keys.submits("t_b")) == 0


async def test_without_a_limit_there_is_no_header_and_no_bucket(api: Api) -> None:
    shown = await api.get("/v1/limits")

    assert shown.body["limits"]["gpuSecondsPerDay"] is None
    assert shown.body["submits"] is None
    assert not {"ratelimit", "ratelimit-policy"} & set(shown.headers)


async def test_a_resource_of_the_pipelines_file_is_written_down_when_it_is_new(store_url: str, tmp_path: Path) -> None:
    settings = settings_for(store_url, tmp_path)
    file, written = settings.pipelines, settings.pipelines.read_text()
    for text in (MODERATED, MODERATED, MODERATED.replace("rate = 5", "rate = 9")):
        file.write_text(written + text)
        context = IngestService(settings).context
        await context.open(asyncio.Event())
        defined = await said(context.store, "resource.defined")
        await context.store.aclose()

    assert [(each["resource"], each["rate"], each["windowMs"]) for each in defined] == [
        ("moderation", 5, 1_500), ("moderation", 9, 1_500),
    ]  # fmt: skip
