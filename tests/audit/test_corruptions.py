"""Whatever a foreign hand changes in archive, log or live state is found, with its place."""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from contracts import events as ev
from contracts import ids
from contracts.archive import seal
from contracts.archive.checkpoints import SECRET, Signer
from contracts.archive.names import SegmentName
from contracts.archive.segments import parse
from contracts.events import Event
from contracts.store import keys
from contracts.store.records import Record
from contracts.store.write import JobGuard, Write
from tests.archivist.rig import POOL, TENANT
from tests.audit.rig import Lived, attempted, edited

Place = tuple[str, str]  # kind of finding, or name of projection; and position, or row
Plant = Callable[[Lived], Awaitable[Place]]


async def an_entry_of_a_segment_is_edited(lived: Lived) -> Place:
    name = (await lived.sealed())[0]
    lines = lived.lines(name)
    lines[3] = edited(lines[3], b"t_a", b"t_b")
    lived.put(name, lines)
    return "altered_entry", orjson.loads(lines[3])["p"]


async def an_entry_is_removed_from_a_segment(lived: Lived) -> Place:
    name = (await lived.sealed())[0]
    lines = lived.lines(name)
    del lines[3]
    foot = orjson.loads(lines[-1])
    lived.put(name, [*lines[:-1], orjson.dumps({**foot, "count": foot["count"] - 1})])
    return "altered_entry", orjson.loads(lines[3])["p"]


async def two_entries_of_a_segment_change_places(lived: Lived) -> Place:
    name = (await lived.sealed())[0]
    lines = lived.lines(name)
    lines[3], lines[4] = lines[4], lines[3]
    lived.put(name, lines)
    return "out_of_order", orjson.loads(lines[4])["p"]


async def a_segment_is_cut_short(lived: Lived) -> Place:
    name = (await lived.sealed())[0]
    lived.put(name, lived.lines(name)[:-2])
    return "unreadable_segment", name.first


async def two_segments_are_swapped(lived: Lived) -> Place:
    first, second = (await lived.sealed())[:2]
    kept = lived.lines(first)
    lived.put(first, lived.lines(second))
    lived.put(second, kept)
    return "chain_broken", first.first


async def a_segment_lies_where_another_belongs(lived: Lived) -> Place:
    name = (await lived.sealed())[1]
    lines = lived.lines(name)
    lived.pool.objects.delete(name.key(POOL))
    lived.put(SegmentName(name.epoch + 1, name.first, name.last), lines)
    return "wrong_segment", name.first


async def a_segment_is_removed(lived: Lived) -> Place:
    first, second = (await lived.sealed())[:2]
    lived.pool.objects.delete(first.key(POOL))
    return "chain_broken", second.first


async def the_last_segment_is_removed(lived: Lived) -> Place:
    last = (await lived.sealed())[-1]
    lived.pool.objects.delete(last.key(POOL))
    return "chain_end", last.last


async def the_digest_of_the_manifest_is_changed(lived: Lived) -> Place:
    await lived.client.hset(keys.archive(POOL), "digest", "0" * 64)
    return "chain_end", (await lived.sealed())[-1].last


async def the_chain_is_made_anew_around_an_edit(lived: Lived) -> Place:
    """Whoever may write everything but does not have the key: only the signature tells."""
    names, digest, fits, upto = await lived.sealed(), bytes(32), False, ""
    for number, name in enumerate(names):
        segment = parse(b"\n".join(lived.lines(name)) + b"\n", "here")
        records = list(segment.records)
        if not number:
            fields = tuple(text.replace(b"t_a", b"t_b") for text in records[1].fields)
            fits, records[1] = fields != records[1].fields, Record(records[1].position, fields)
        made, packed = seal(POOL, name.epoch, digest, records)
        lived.pool.objects.put_file(name.key(POOL), packed, "application/zstd")
        digest, upto = made.after, name.last
    await lived.client.hset(keys.archive(POOL), mapping={"digest": digest.hex(), "upto": upto})
    assert fits
    signed = [fields for _, fields in await lived.entries() if fields[b"t"] == b"log.checkpointed"]
    return "checkpoint_differs", orjson.loads(signed[0][b"d"])["position"]


async def a_checkpoint_is_signed_with_another_key(lived: Lived) -> Place:
    last = (await lived.sealed())[-1]
    forged = Signer(secrets.token_bytes(32)).sign(POOL, 1, last.last, 99, "ab" * 32)
    return "forged_checkpoint", await _log(lived, forged)


async def a_checkpoint_says_another_digest(lived: Lived) -> Place:
    """Somebody has the key, but the archive is not the one they sign."""
    last = (await lived.sealed())[-1]
    seed = await lived.store.directory.secret(SECRET)
    assert seed is not None
    await _log(lived, Signer(bytes.fromhex(seed)).sign(POOL, 1, last.last, 99, "ab" * 32))
    return "checkpoint_differs", last.last


async def a_sealed_entry_is_removed_from_the_log(lived: Lived) -> Place:
    position, _ = (await lived.entries())[4]
    await lived.client.xdel(keys.log(POOL), position)
    return "log_differs", position


async def an_event_is_removed_from_the_log(lived: Lived) -> Place:
    job_id = await lived.pool.job()
    await lived.pool.cancel(job_id)
    (created, _), (cancelled, _) = (await lived.unsealed())[-2:]
    await lived.client.xdel(keys.log(POOL), created)
    return "sequence_gap", cancelled


async def the_newest_event_of_a_job_is_removed(lived: Lived) -> Place:
    position, fields = next(entry for entry in await lived.unsealed() if entry[1][b"t"] == b"job.cancelled")
    await lived.client.xdel(keys.log(POOL), position)
    return "jobs", fields[b"j"].decode()


async def an_event_is_doubled(lived: Lived) -> Place:
    _, fields = next(entry for entry in await lived.unsealed() if entry[1][b"t"] == b"job.cancelled")
    return "sequence_gap", await _raw(lived, fields)


async def a_job_ends_twice(lived: Lived) -> Place:
    position, fields = next(entry for entry in await lived.unsealed() if entry[1][b"t"] == b"job.cancelled")
    return "illegal_transition", await _raw(lived, fields | {b"n": b"3", b"p": position.encode()})


async def a_back_pointer_is_wrong(lived: Lived) -> Place:
    job = {b"t": b"job.cancel_requested", b"j": lived.open[0].encode(), b"n": b"2", b"f": b"0", b"p": b"1-1"}
    return "wrong_back_pointer", await _raw(lived, job | {b"d": b'{"by":"tenant"}'})


async def a_fence_is_wrong(lived: Lived) -> Place:
    last = await lived.client.hget(keys.job(POOL, lived.open[0]), "p")
    assert isinstance(last, bytes)
    job = {b"t": b"job.metadata_changed", b"j": lived.open[0].encode(), b"n": b"2", b"f": b"4", b"p": last}
    return "wrong_fence", await _raw(lived, job | {b"d": b"{}"})


async def an_entry_cannot_be_read(lived: Lived) -> Place:
    return "unreadable", await _raw(lived, {b"nothing": b"of ours"})


async def an_attempt_to_deliver_is_doubled(lived: Lived) -> Place:
    event = attempted(lived.delivery, lived.ended[0], 2, None)
    return "doubled_delivery", await _log(lived, event, lived.delivery)


async def a_delivery_forgets_an_attempt(lived: Lived) -> Place:
    await lived.client.hset(keys.delivery(POOL, lived.delivery), "try", 1)
    return "deliveries", lived.delivery


async def a_delivery_that_is_to_be_tried_again_is_gone(lived: Lived) -> Place:
    delivery = await lived.delivered(lived.ended[1], 1_000_000_000_000)
    await lived.client.delete(keys.delivery(POOL, delivery))
    return "deliveries", delivery


async def a_field_of_a_job_is_changed(lived: Lived) -> Place:
    await lived.client.hset(keys.job(POOL, lived.open[0]), "pr", "high")
    return "jobs", lived.open[0]


async def the_status_of_a_job_is_changed(lived: Lived) -> Place:
    await lived.client.hset(keys.job(POOL, lived.ended[0]), "s", "queued")
    return "jobs", lived.ended[0]


async def a_job_is_removed(lived: Lived) -> Place:
    await lived.client.delete(keys.job(POOL, lived.open[0]))
    return "jobs", lived.open[0]


async def a_job_becomes_something_else(lived: Lived) -> Place:
    await lived.client.set(keys.job(POOL, lived.open[0]), "text")
    return "jobs", lived.open[0]


async def a_job_is_there_of_which_the_log_knows_nothing(lived: Lived) -> Place:
    stranger = ids.mint_job_id(1_764_457_200_000, 99, "aa")
    await lived.client.hset(keys.job(POOL, stranger), mapping={"s": "queued", "n": 1, "p": "1-1"})
    return "jobs", stranger


async def the_count_of_open_jobs_is_changed(lived: Lived) -> Place:
    await lived.client.hincrby(keys.usage(POOL), "jobs", 1)
    return "counters", "jobs"


async def the_bytes_of_a_tenant_are_changed(lived: Lived) -> Place:
    await lived.client.hincrby(keys.usage(POOL), f"b:{TENANT}", -1)
    return "counters", f"b:{TENANT}"


async def an_ended_job_is_listed_as_open(lived: Lived) -> Place:
    await lived.client.zadd(keys.jobs(POOL, TENANT), {lived.ended[0]: 0})
    return "lists", lived.ended[0]


async def a_job_is_taken_off_the_list(lived: Lived) -> Place:
    await lived.client.zrem(keys.jobs(POOL, TENANT), lived.open[0])
    return "lists", lived.open[0]


async def a_job_that_is_none_is_listed(lived: Lived) -> Place:
    await lived.client.zadd(keys.jobs(POOL, TENANT), {"job_x": 0})
    return "lists", TENANT


async def a_dead_letter_is_not_listed(lived: Lived) -> Place:
    job_id = await lived.dead_letter()
    await lived.client.zrem(keys.dead_letters(POOL), job_id)
    return "dead_letters", job_id


async def a_job_that_is_none_is_a_dead_letter(lived: Lived) -> Place:
    await lived.client.zadd(keys.dead_letters(POOL), {"job_x": 5})
    return "dead_letters", "all"


async def the_body_of_a_job_is_lost(lived: Lived) -> Place:
    await lived.client.delete(keys.body(POOL, lived.open[0]))
    return "bodies", lived.open[0]


async def the_body_of_a_job_is_edited(lived: Lived) -> Place:
    job_id = await lived.submitted()
    await lived.client.setrange(keys.body(POOL, job_id), 12, "Z")
    return "bodies", job_id


async def the_content_of_an_erased_job_is_still_there(lived: Lived) -> Place:
    write = Write(lived.ended[0], (ev.JobErased(by="key_op", reason="asked"),), guard=JobGuard())
    assert (await lived.store.jobs.append(POOL, write, "e")).applied
    return "bodies", lived.ended[0]


async def a_dedup_key_is_lost(lived: Lived) -> Place:
    job_id = await lived.submitted(dedup="ab" * 16)
    await lived.client.delete(keys.dedup_in_flight(POOL, TENANT))
    return "dedup", job_id


async def a_dedup_key_outlives_its_job(lived: Lived) -> Place:
    job_id = await lived.submitted(dedup="ab" * 16)
    await lived.pool.cancel(job_id)
    await lived.client.hset(keys.dedup_in_flight(POOL, TENANT), "ab" * 16, job_id)
    return "dedup", job_id


async def a_dedup_key_is_held_by_nobody(lived: Lived) -> Place:
    await lived.client.hset(keys.dedup_in_flight(POOL, TENANT), "cd" * 16, "job_x")
    return "dedup", TENANT


async def a_planned_delivery_is_lost(lived: Lived) -> Place:
    _, delivery = await lived.hooked()
    await lived.client.delete(keys.delivery(POOL, delivery))
    return "deliveries", delivery


async def a_delivery_that_waits_is_in_no_queue(lived: Lived) -> Place:
    _, delivery = await lived.hooked()
    await lived.client.zrem(keys.due_of(POOL, ids.endpoint_of(delivery)), delivery)
    return "queues", delivery


async def an_endpoint_with_deliveries_is_in_no_line(lived: Lived) -> Place:
    _, delivery = await lived.hooked()
    await lived.client.zrem(keys.due(POOL), ids.endpoint_of(delivery))
    return "queues", delivery


async def an_ended_job_is_in_no_list_to_be_forgotten(lived: Lived) -> Place:
    await lived.client.zrem(keys.ended(POOL, "failed"), lived.ended[0])
    return "ended", lived.ended[0]


async def an_open_job_is_listed_to_be_forgotten(lived: Lived) -> Place:
    await lived.client.zadd(keys.ended(POOL, "completed"), {lived.open[0]: 1})
    return "ended", lived.open[0]


async def an_ended_job_is_listed_under_both_kinds(lived: Lived) -> Place:
    await lived.client.zadd(keys.ended(POOL, "completed"), {lived.ended[1]: 1})
    return "ended", lived.ended[1]


async def a_delivery_knows_of_an_attempt_too_many(lived: Lived) -> Place:
    await lived.client.hset(keys.delivery(POOL, lived.delivery), "try", 3)
    return "deliveries", lived.delivery


CHAIN: list[Plant] = [
    an_entry_of_a_segment_is_edited, an_entry_is_removed_from_a_segment, two_entries_of_a_segment_change_places,
    a_segment_is_cut_short, two_segments_are_swapped,
    a_segment_lies_where_another_belongs, a_segment_is_removed, the_last_segment_is_removed,
    the_digest_of_the_manifest_is_changed, the_chain_is_made_anew_around_an_edit,
    a_checkpoint_is_signed_with_another_key, a_checkpoint_says_another_digest,
]  # fmt: skip
LOG: list[Plant] = [
    an_event_is_removed_from_the_log, an_event_is_doubled, a_job_ends_twice, a_back_pointer_is_wrong,
    a_fence_is_wrong, an_entry_cannot_be_read, an_attempt_to_deliver_is_doubled,
]  # fmt: skip
LIVE: list[Plant] = [
    the_newest_event_of_a_job_is_removed, a_delivery_forgets_an_attempt,
    a_delivery_that_is_to_be_tried_again_is_gone, a_field_of_a_job_is_changed,
    the_status_of_a_job_is_changed, a_job_is_removed, a_job_becomes_something_else,
    a_job_is_there_of_which_the_log_knows_nothing, the_count_of_open_jobs_is_changed,
    the_bytes_of_a_tenant_are_changed, an_ended_job_is_listed_as_open, a_job_is_taken_off_the_list,
    a_job_that_is_none_is_listed, a_dead_letter_is_not_listed, a_job_that_is_none_is_a_dead_letter,
    the_body_of_a_job_is_lost, the_body_of_a_job_is_edited,
    the_content_of_an_erased_job_is_still_there, a_dedup_key_is_lost,
    a_dedup_key_outlives_its_job, a_dedup_key_is_held_by_nobody, a_planned_delivery_is_lost,
    a_delivery_that_waits_is_in_no_queue, an_endpoint_with_deliveries_is_in_no_line,
    an_ended_job_is_in_no_list_to_be_forgotten, an_open_job_is_listed_to_be_forgotten,
    an_ended_job_is_listed_under_both_kinds, a_delivery_knows_of_an_attempt_too_many,
]  # fmt: skip


@pytest.mark.parametrize("plant", CHAIN, ids=lambda plant: plant.__name__)
async def test_a_change_of_the_archive_is_placed(lived: Lived, plant: Plant) -> None:
    """What was sealed is in the archive alone."""
    await lived.trim_all()
    kind, position = await plant(lived)

    verdict = await lived.verify()

    assert (kind, position) in {(each.kind, each.position) for each in verdict.findings.kept}
    assert (verdict.ok, verdict.chain_ok, verdict.findings.first) == (False, False, position)


async def test_what_is_in_the_archive_and_the_log_must_be_the_same(lived: Lived) -> None:
    kind, position = await a_sealed_entry_is_removed_from_the_log(lived)

    verdict = await lived.verify()

    assert [(each.kind, each.position) for each in verdict.findings.kept] == [(kind, position)]
    assert (verdict.ok, verdict.chain_ok) == (False, False)


@pytest.mark.parametrize("plant", LOG, ids=lambda plant: plant.__name__)
async def test_a_change_of_the_log_is_placed(lived: Lived, plant: Plant) -> None:
    kind, position = await plant(lived)

    verdict = await lived.verify()

    assert (kind, position) in {(each.kind, each.position) for each in verdict.findings.kept}
    assert (verdict.ok, verdict.chain_ok, verdict.findings.first) == (False, True, position)


@pytest.mark.parametrize("plant", LIVE, ids=lambda plant: plant.__name__)
async def test_a_change_of_the_live_state_is_placed(lived: Lived, plant: Plant) -> None:
    name, row = await plant(lived)

    verdict = await lived.verify()

    differing = {each.name: each.sample for each in verdict.projections}
    assert not verdict.ok
    assert any(text.startswith(f"{row}: ") for text in differing[name]), differing


async def _log(lived: Lived, event: Event, subject: str = "log") -> str:
    reply = await lived.store.note(POOL, subject, event, secrets.token_hex(8))
    assert reply.applied
    return reply.position


async def _raw(lived: Lived, fields: dict[bytes, bytes]) -> str:
    position: Any = await lived.client.xadd(keys.log(POOL), dict(fields))  # type: ignore[arg-type]
    return str(position.decode())
