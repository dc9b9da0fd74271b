"""One job through the function library, on each server: every verb once, and the fold equals the hash."""

import asyncio

from contracts import events as ev
from contracts import ids
from contracts.endpoints import Private, SigningSecret, endpoint_secret
from contracts.job import JobStatus
from contracts.job_changes import EVERY_EVENT
from contracts.job_fold import fold
from contracts.store import Store, Word
from contracts.store.attempts import Attempt, Offer, read_offer
from contracts.store.directory import Rewrite
from contracts.store.jobs import Limits
from contracts.store.leadership import build_turn
from contracts.store.write import JobGuard, WorkEntry, WorkerFields, WorkerGuard, Write
from contracts.tenant import Configuration

POOL = "default"


async def test_a_job_goes_from_admission_to_completion_and_the_fold_is_the_hash(store: Store) -> None:
    job_id = ids.mint_job_id(1_764_457_200_000, 12345, "aa")
    created = ev.JobCreated(
        tenant_id="t_a", model="echo@1", timeout_ms=60_000, body_bytes=20, webhook_events=("job.completed",)
    )
    admitted = await store.jobs.admit(POOL, Write(job_id, (created,)), b'{"prompt":"x"}', "t_a", Limits())
    assert (admitted.word, admitted.sequence, admitted.state) == (Word.APPLIED, 1, "")
    again = await store.jobs.admit(POOL, Write(job_id, (created,)), b'{"prompt":"x"}', "t_a", Limits())
    assert (again.word, again.position, again.state) == (Word.APPLIED, admitted.position, "repeat")

    worker = ids.mint_worker_id(1, 2)
    slot = ev.SlotInfo(index=0, device="cpu-h-0-0", kind="cpu", bytes=0)
    registered = ev.WorkerRegistered(worker_id=worker, host="h", pid=1, slots=(slot,))
    assert await store.attempts.register(POOL, registered, {"host": "h"})
    assert list(await store.workers(POOL)) == [worker]

    led, epoch, turn_number = await store.leadership.lead(POOL, "tok", 3000)
    assert (led, epoch, turn_number) == (True, 1, 0)
    offer = Offer(job_id, "off1", 0, 0, 0, 3, "t_a", "echo@1", 60_000, webhook_events=("job.completed",))
    assign = Write(
        job_id,
        (ev.JobAssigned(worker_id=worker, offer_id="off1", slot=0, device="cpu-h-0-0"),),
        guard=JobGuard(states=("queued",), fence=0, run=1),
        worker_guard=WorkerGuard(worker, open=True, deck_empty=0),
        worker_fields=(WorkerFields(worker, {"d0": f"{job_id} off1"}),),
        work=(WorkEntry(worker, "offer", offer.to_data()),),
    )
    turn = build_turn(POOL, "tok", 1, 3000, [assign], cursor=admitted.position, entries_read=2)
    first = await store.leadership.turn(turn)
    assert [v.word for v in first.verdicts] == [Word.APPLIED]
    assert await store.leadership.turn(turn) == first or (await store.leadership.turn(turn)).verdicts == first.verdicts

    messages = await store.work(POOL, worker).read(block_ms=100)
    if not messages:
        messages = await store.work(POOL, worker).read(block_ms=100)
    assert messages[0].fields is not None
    got = read_offer(messages[0].fields[b"d"])
    assert got == offer

    attempt = Attempt(POOL, worker, got, fence=1, attempt=1)
    start = ev.JobStarted(worker_id=worker, offer_id="off1", slot=0, device="cpu-h-0-0", attempt=1)
    started = await store.attempts.start(attempt, start, [messages[0].position])
    assert (started.word, started.body) == (Word.APPLIED, b'{"prompt":"x"}')
    assert (await store.attempts.start(attempt, start)).word is Word.APPLIED

    progress = await store.attempts.emit(attempt, [ev.JobProgress(progress=50, step=1, total_steps=2)])
    assert progress.word is Word.APPLIED
    assert await store.attempts.repeat(attempt, [ev.JobProgress(progress=50, step=1, total_steps=2)]) == progress
    beat = await store.attempts.heartbeat(POOL, worker, [(job_id, 1)])
    assert (beat.word, beat.held) == (Word.APPLIED, ("1",))
    done = await store.attempts.emit(
        attempt, [ev.JobDeviceReleased(gpu_ms=5), ev.JobCompleted(attempt=1)], line=b'\n{"result":{}}', closes=True
    )
    assert done.word is Word.APPLIED
    late = await store.attempts.emit(attempt, [ev.JobProgress(progress=60)])
    assert late.word is Word.FENCED

    history = await store.jobs.history(POOL, job_id, with_body=True)
    assert history is not None
    assert history.complete
    assert history.body == b'{"prompt":"x"}\n{"result":{}}'
    folded = fold(job_id, history.entries)
    assert folded == history.state
    assert folded.status is JobStatus.COMPLETED
    assert [e.type for e in history.entries][:3] == ["job.created", "job.assigned", "job.started"]
    assert await store.jobs.page(POOL, "t_a") == [job_id]
    assert await store.jobs.page(POOL, "t_a", closed=False) == []

    usage = await store.client.hgetall("hr:{default}:usage")
    assert usage == {b"jobs": b"0", b"bytes": b"0"}


async def test_configuration_is_folded_and_a_revoked_key_is_gone(store: Store) -> None:
    directory = store.directory
    await directory.change(lambda _: ev.TenantCreated(tenant_id="t_a"), "t_a", {"webhook:t_a": "whsec_x"})
    await directory.change(
        lambda _: ev.KeyCreated(tenant_id="t_a", key_id="k1", sha256="00", scopes=("jobs:read",)), "k1"
    )
    assert list(directory.configuration.keys) == ["k1"]
    assert await directory.secret("webhook:t_a") == "whsec_x"
    await directory.change(lambda _: ev.KeyRevoked(tenant_id="t_a", key_id="k1"), "k1")
    assert directory.configuration.keys == {}
    assert directory.configuration.pools == {"default": "aa"}


async def test_what_is_kept_is_replaced_with_its_event_and_goes_with_the_last_one(store: Store) -> None:
    directory, wh = store.directory, "wh_01jd0000000000000000000000"
    name, of = endpoint_secret(wh), {"tenant_id": "t_a", "endpoint_id": wh}
    made = Private("https://a.example/?token=x", {"x-key": "y"}, (SigningSecret("whsec_a"),))
    created = ev.EndpointCreated(**of, origin="https://a.example", events=("*",))
    await directory.change(lambda _: created, wh, {name: made.to_json()})

    def rotate(_: Configuration, known: Private) -> tuple[ev.Event, Private]:
        return ev.EndpointSecretRotated(**of, old_until_ms=9), known.rotated("whsec_b", 1, 9)

    assert await directory.private(name) == made
    await directory.rewrite(name, rotate, wh)
    rotated = await directory.private(name)
    assert rotated is not None
    assert (rotated.url, rotated.signing(8), rotated.signing(9)) == (made.url, ("whsec_b", "whsec_a"), ("whsec_b",))
    await directory.rewrite(name, lambda _, known: None, wh)
    assert await directory.private(name) == rotated
    await directory.rewrite(name, lambda _, known: (ev.EndpointDeleted(**of), None), wh)
    assert (await directory.private(name), directory.configuration.endpoints) == (None, {})


async def test_two_rotations_at_once_both_happen(store: Store) -> None:
    """Field case 112: none of two new secrets is lost, though each was made of what was kept before the other."""
    directory = store.directory

    def rotate(secret: str) -> Rewrite:
        event = ev.TenantWebhookSecretRotated(tenant_id="t_a", old_until_ms=9)
        return lambda _, known: (event, known.rotated(secret, 1, 9))

    await directory.change(lambda _: ev.TenantCreated(tenant_id="t_a"), "t_a", {"webhook:t_a": "whsec_0"})
    await asyncio.gather(*(directory.rewrite("webhook:t_a", rotate(f"whsec_{n}"), "t_a") for n in (1, 2)))

    kept = await directory.private("webhook:t_a")
    assert kept is not None
    assert sorted(kept.signing(8)) == ["whsec_0", "whsec_1", "whsec_2"]
    assert len(kept.signing(9)) == 1


async def test_from_a_changed_subscription_on_every_event_is_marked_whatever_its_writer_knows(store: Store) -> None:
    job_id = ids.mint_job_id(1_764_457_200_000, 12345, "aa")
    created = ev.JobCreated(tenant_id="t_a", model="echo@1", timeout_ms=1, webhook_events=("job.completed",))
    await store.jobs.admit(POOL, Write(job_id, (created,)), b"{}", "t_a", Limits())
    named = ev.JobMetadataChanged(keys=("a",))
    await store.jobs.append(POOL, Write(job_id, (named,)), "w1")
    await store.jobs.append(POOL, Write(job_id, (named, ev.JobWebhookChanged(events=("job.queued",)), named)), "w2")
    await store.jobs.append(POOL, Write(job_id, (named,)), "w3")

    history = await store.jobs.history(POOL, job_id)
    assert history is not None
    assert [entry.hooked for entry in history.entries] == [False, False, False, True, True, True]
    assert history.state == history.folded()
    assert history.state.hooked == EVERY_EVENT
