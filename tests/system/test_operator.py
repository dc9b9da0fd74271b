"""What an operator turns while jobs come in: pauses, limits, the policy. All of it by events, none by a restart."""

import re

import pytest

from contracts.policy import SchedulingPolicy
from contracts.positions import entry_ms
from tests.harness import Stack
from tests.harness.tail import eventually
from tests.system.test_fairness import most_at_once

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def reasons(stack: Stack, job_id: str) -> set[str]:
    """Return the codes that the leader gives for why a job waits."""
    told = await stack.request("GET", f"/v1/jobs/{job_id}/explain")
    return {reason["code"] for reason in told.json["reasons"]}


async def waits_for(stack: Stack, job_id: str, code: str) -> None:
    async def told() -> bool:
        return code in await reasons(stack, job_id)

    await eventually(told, f"{job_id} waits for {code}")


async def test_what_is_paused_waits_with_its_reason_and_the_rest_goes_on(stack: Stack) -> None:
    """Pool, model and tenant: a paused job is not offered while devices idle, and runs when the pause is taken back."""
    other = await stack.make_tenant()
    tenant = (await stack.request("GET", "/v1/limits")).json["tenantId"]

    await stack.admin("POST", "/models/noop/pause", {"reason": "story"})
    await stack.log.wait_for_any("policy.applied", pausedModels=["noop"])
    paused, passing = await stack.submit("noop"), await stack.submit("echo")
    await stack.wait_for(passing, "job.completed")
    assert stack.log.of(paused, "job.assigned") == []
    await stack.admin("POST", "/models/noop/resume", {})
    await stack.wait_for(paused, "job.completed")

    await stack.admin("POST", f"/tenants/{tenant}/pause", {"reason": "story"})
    await stack.log.wait_until(lambda: rules(stack, tenant)[-1:] == [True], "the tenant's pause")
    paused, passing = await stack.submit("noop"), await stack.submit("noop", key=other)
    await stack.wait_for(passing, "job.completed")
    assert stack.log.of(paused, "job.assigned") == []
    await stack.admin("POST", f"/tenants/{tenant}/resume", {})
    await stack.wait_for(paused, "job.completed")

    await stack.admin("POST", "/pools/default/pause", {"reason": "story"})
    await stack.log.wait_for_any("policy.applied", paused=True)
    paused = await stack.submit("noop")
    await waits_for(stack, paused, "pool_paused")
    await stack.admin("POST", "/pools/default/resume", {})
    resumed = await stack.log.wait_for_any("policy.applied", paused=False)
    await stack.wait_for(paused, "job.completed")
    assert entry_ms(stack.log.of(paused, "job.assigned")[0].position) >= entry_ms(resumed.position)
    await stack.audit()


def rules(stack: Stack, tenant: str) -> list[bool]:
    """Return what the pool's log says of a tenant's pause, oldest first."""
    applied = [entry.raw_data() for entry in stack.log.entries if entry.type == "policy.applied"]
    return [bool(each["tenants"][tenant]["paused"]) for each in applied if tenant in each.get("tenants", {})]


async def test_a_budget_that_is_used_up_holds_the_next_job_until_it_is_raised(stack: Stack) -> None:
    key = await stack.make_tenant(limits={"gpuSecondsPerDay": 1})
    tenant = (await stack.request("GET", "/v1/limits", key=key)).json["tenantId"]
    first = await stack.submit("slow", {"steps": 30, "step_s": 0.05}, key=key)
    await stack.wait_for(first, "job.started")

    async def shows_it_running() -> bool:
        shown = (await stack.request("GET", "/v1/limits", key=key)).json
        return bool(shown["use"]["default"]["running"] == 1)

    await eventually(shows_it_running, "the running job in /v1/limits")
    await stack.wait_for(first, "job.completed")
    exhausted = await stack.log.wait_for_any("tenant.budget_exhausted", tenantId=tenant)
    second = await stack.submit("noop", key=key)
    passing = await stack.submit("noop")
    await stack.wait_for(passing, "job.completed")
    limits = await stack.request("GET", "/v1/limits", key=key)
    assert stack.log.of(second, "job.assigned") == []
    assert limits.json["use"]["default"]["gpuSeconds"] >= 1
    assert '"gpu";r=0;t=' in limits.headers["RateLimit"]
    assert exhausted.raw_data()["limitGpuSeconds"] == 1

    await stack.admin("PATCH", f"/tenants/{tenant}", {"limits": {"gpuSecondsPerDay": None}})

    await stack.wait_for(second, "job.completed")
    await stack.audit()


async def test_a_cap_leaves_a_slot_idle_and_the_metric_says_for_how_long_and_why(stack: Stack) -> None:
    """Field case 21: the cap is hard, also when nobody else is there; who comes then has the idle slot at once."""
    other, key = await stack.make_tenant(), await stack.make_tenant(limits={"concurrency": 1})
    tenant = (await stack.request("GET", "/v1/limits", key=key)).json["tenantId"]
    await stack.log.wait_until(lambda: rules(stack, tenant) != [], "the tenant's cap")
    jobs = [await stack.submit("slow", {"steps": 9, "step_s": 0.1}, key=key) for _ in range(3)]
    await stack.wait_for(jobs[0], "job.completed")
    passing = await stack.submit("noop", key=other)
    await stack.wait_for_ends()

    assert most_at_once(stack.log.entries, set(jobs)) == 1
    between = [entry.subject for entry in stack.log.entries if entry.type in ("job.created", "job.started")]
    assert between[between.index(passing) + 1 :].index(passing) <= 1
    page = await (await stack.http.get(stack.ready["url"] + "/metrics")).text()
    found = re.search(
        r'^headrace_idle_slot_seconds_total{pool="default",reason="tenant_concurrency"} (\S+)', page, re.M
    )
    assert found
    assert float(found[1]) >= 0.6  # of the 0.9 s of the first job; in the second one `noop` may be loaded there
    await stack.audit()


async def test_a_change_of_policy_reaches_the_log_it_is_judged_by(stack: Stack) -> None:
    patched = await stack.admin("PATCH", "/scheduler/policy", {"leadSeconds": 12.5, "reason": "story"})
    assert patched.json["leadSeconds"] == 12.5
    applied = await stack.log.wait_for_any("policy.applied")
    assert applied.raw_data()["policy"]["leadS"] == 12.5

    await stack.admin("PATCH", "/scheduler/policy", {"leadSeconds": None})

    await stack.log.wait_until(
        lambda: stack.log.entries[-1].raw_data().get("policy", {}).get("leadS") == SchedulingPolicy().lead_s,
        "the setting again",
    )
    await stack.audit()
