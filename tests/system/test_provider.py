"""An outside service with a limit of its own: all workers together keep to it, and what it refuses is not lost."""

import asyncio
import os
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from contracts.positions import entry_key, entry_ms
from contracts.wire import Entry
from tests.harness import Stack
from tests.harness.up import PIPELINES
from tests.notifier.receiver import Behaviour, Receiver, answer
from tests.system.conftest import Starter

pytestmark = pytest.mark.asyncio(loop_scope="session")

JOBS = int(os.environ.get("HEADRACE_TEST_CALLS", "16"))  # the field case asks for 100: 13 s
RATE, WINDOW_S = 5, 0.5  # as provider.toml declares it
JITTER_S = 0.2  # a token's call may come so much earlier or later after its grant: this machine is busy
BEYOND_S, SHUT_S = 1, 2  # what it asks to wait: for a call too many, and while it is shut
WORKERS = 4
DEADLINE_S = 2.5


@dataclass
class Provider:
    """Answers RATE calls in a window and refuses what is beyond; refuses everything while it `is_shut`."""

    at_s: deque[float] = field(default_factory=deque)
    answered_s: list[float] = field(default_factory=list)
    refused_s: list[float] = field(default_factory=list)
    is_shut: bool = False

    def behaviour(self) -> Behaviour:
        """Return what a Receiver plays."""

        async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            now_s = asyncio.get_running_loop().time()
            while self.at_s and self.at_s[0] <= now_s - WINDOW_S + JITTER_S:
                self.at_s.popleft()
            refuses = self.is_shut or len(self.at_s) >= RATE
            (self.refused_s if refuses else self.answered_s).append(now_s)
            if not refuses:
                self.at_s.append(now_s)
            again = {"Retry-After": str(SHUT_S if self.is_shut else BEYOND_S)}
            await (answer(429, again) if refuses else answer(200))(reader, writer)

        return behave


async def test_four_workers_keep_to_the_limit_of_a_provider_and_obey_its_refusal(start_stack: Starter) -> None:
    """Field case 34: hardly a 429, and after one nobody calls while devices do other work; none is refused for ever."""
    stack = await start_stack(
        workers=WORKERS, pipelines=PIPELINES.parent / "provider.toml",
        settings={"HEADRACE_RETRY__RATE_LIMITED_S": str(DEADLINE_S)},
    )  # fmt: skip
    provider, closed = Provider(), Provider(is_shut=True)
    async with Receiver([provider.behaviour()]) as service, Receiver([closed.behaviour()]) as closed_service:
        url = service.url()
        # a call a worker, so that no load of the model blurs the rate that the provider sees
        await stack.wait_for_ends(*[await stack.submit("calls", {"url": url}) for _ in range(WORKERS)])
        once = {"maxAttempts": 1}
        hopeless = await stack.submit(
            "calls_unknown", {"url": closed_service.url(), "resource": "unknown"}, policy=once
        )
        calls = [await stack.submit("calls", {"url": url}, policy=once) for _ in range(JOBS)]
        await stack.log.wait_until(lambda: sum(map(stack.log.has_ended, calls)) >= JOBS // 2, "half of the calls")
        beyond = len(provider.refused_s)

        provider.is_shut = True
        refusal = await stack.log.wait_for_any("job.queued", resource="provider", retryAfterMs=SHUT_S * 1000)
        provider.is_shut = False
        other = await stack.submit("noop")
        ends = await stack.wait_for_ends()

    assert beyond <= JOBS // 4
    assert dict(zip(stack.jobs, ends, strict=True)) == dict.fromkeys(stack.jobs, "job.completed") | {
        hopeless: "job.failed"
    }
    judge_calls(stack, calls)
    # the devices were free for other work while the provider was shut
    shut_until_ms = max(
        until_of(pause) for pause in pauses(stack) if entry_key(pause.position) > entry_key(refusal.position)
    )
    assert entry_ms(stack.log.of(other, "job.completed")[0].position) < shut_until_ms
    failure = stack.log.of(hopeless, "job.failed")[0].raw_data()
    assert failure["error"]["code"] == "rate_limited"  # type: ignore[index]
    assert 1000 * DEADLINE_S <= stack.log.ms_between(hopeless, "job.queued", "job.failed") < 1000 * DEADLINE_S + 4_000
    await stack.audit()


async def test_behind_a_limit_bands_and_order_hold_and_retries_draw_on_it_too(start_stack: Starter) -> None:
    """Field cases 13 and 25: three high ones pass ten low ones, each in its order; no start but at its pace."""
    stack = await start_stack(devices="cpu*2", pipelines=PIPELINES.parent / "provider.toml")
    retried = await stack.submit("narrow_fails_once", {"marker": str(stack.folder / "marker")})
    await stack.wait_for(retried, "job.started")
    low = [await stack.submit("narrow", priority="low") for _ in range(10)]
    high = [await stack.submit("narrow", priority="high") for _ in range(3)]

    ends = await stack.wait_for_ends()

    assert set(ends) == {"job.completed"}
    assert len(stack.log.of(retried, "job.started")) == 2
    starts = [entry.subject for entry in stack.log.entries if entry.type == "job.started" and entry.subject != retried]
    assert [job for job in starts if job in high] == high
    assert [job for job in starts if job in low] == low
    submitted = stack.log.of(high[-1], "job.created")[0].position
    since = [
        entry.subject
        for entry in stack.log.entries
        if entry.type == "job.started" and entry_key(entry.position) > entry_key(submitted)
    ]
    assert max(since.index(job) for job in high if job in since) <= 2 + 2  # the token in hand, and the retried one
    offers_ms = [entry_ms(entry.position) for entry in stack.log.entries if entry.type == "job.assigned"]
    gaps_ms = [later - earlier for earlier, later in pairwise(offers_ms)]
    assert len(gaps_ms) == 14
    assert min(gaps_ms) >= 200  # a grant takes some ms to become an offer
    await stack.audit()


def judge_calls(stack: Stack, calls: list[str]) -> None:
    """Assert that being refused costs no attempt and frees the device first, and that rate and pauses were kept."""
    for job in calls:
        assert {entry.raw_data()["attempt"] for entry in stack.log.of(job, "job.started")} == {1}
        for refused in stack.log.of(job, "job.queued"):
            before = stack.log.of(job)[stack.log.of(job).index(refused) - 1]
            assert before.type == "job.device_released"
    offers_ms = [entry_ms(each.position) for job in calls for each in stack.log.of(job, "job.assigned")]
    assert all(sum(at_ms - 400 < other_ms <= at_ms for other_ms in offers_ms) <= RATE for at_ms in offers_ms)
    for pause in pauses(stack):
        assert not [at_ms for at_ms in offers_ms if entry_ms(pause.position) < at_ms < until_of(pause)]


def pauses(stack: Stack) -> list[Entry]:
    """Return what the leader told everybody of refusals."""
    return [entry for entry in stack.log.entries if entry.type == "resource.paused"]


def until_of(pause: Entry) -> int:
    """Return until when a resource.paused closes its limit."""
    return int(str(pause.raw_data()["untilMs"]))
