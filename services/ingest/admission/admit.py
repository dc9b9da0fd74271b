"""The two steps of an Idempotency-Key, and the one step without: claim, admit, mark done.

Promises: a repeat never makes a second job, whatever was lost in between; nobody waits for another request's claim;
a refusal leaves no trace, so that the same key may be tried again. A submission answered 503 because the store hung
does not become a job later, unless the caller repeats it; where it may be a job already, the answer says `unconfirmed`.
"""

import hashlib
from dataclasses import replace
from typing import NamedTuple

import structlog

from contracts.errors import HeadraceError, StoreUnavailable, Unconfirmed
from contracts.ids import is_upload_id
from contracts.store.jobs import Limits
from contracts.store.replies import Admission, Submits
from contracts.store.words import Word
from contracts.telemetry import Logger
from services.ingest.admission.draft import Draft
from services.ingest.admission.verdict import refusal, too_fast
from services.ingest.context import Context
from services.ingest.edge.problems import Problem
from services.ingest.minting import Mint

log: Logger = structlog.get_logger(service="ingest")

MAX_KEY_LENGTH = 255
CLAIM_TRIES = 3
# Admitted at the latest when this part of the caller's wait is over, so that the answer can still arrive.
DEADLINE_RATIO = 0.8
_UNCONFIRMED = {
    False: "The job may have been made; a repeat with the same Idempotency-Key finds it or makes it",
    True: "The job may have been made; without an Idempotency-Key a repeat may make a second one",
}


class Submission(NamedTuple):
    """A draft with what decides about it. `queue_limit`: the caller's own, where it is below the tenant's."""

    draft: Draft
    tenant_id: str
    limits: Limits
    key_hash: str | None = None
    fingerprint: str = ""
    queue_limit: int | None = None
    refused: Problem | None = None  # why nothing new is admitted at the moment; a repeat of what exists still is


class Admitted(NamedTuple):
    """The job a submission stands for. `last_status`: as it was last seen, for one that is forgotten by now.

    `is_repeat`: it was made under the same Idempotency-Key; `is_duplicate`: it holds the same dedup key.
    """

    job_id: str
    position: str = ""
    sequence: int = 0
    is_repeat: bool = False
    last_status: str | None = None
    is_duplicate: bool = False
    submits: Submits | None = None  # what the tenant's rate leaves it; None without a rate

    @property
    def is_old(self) -> bool:
        """Whether this submission made no job."""
        return self.is_repeat or self.is_duplicate


async def admit(context: Context, mint: Mint, submission: Submission) -> Admitted:
    """Make the job durable. Raises Problem when there is no room or nobody knows, StoreUnavailable when it is none."""
    if submission.key_hash is None:
        if submission.refused is not None:
            raise submission.refused
        submits = await take_submit(context, submission.tenant_id, submission.limits)
        job_id = mint.job_id(context.pool(submission.draft.pool).code)
        answer = await _admit_once(context, submission, job_id)
        if answer.word is Word.APPLIED:
            return _admitted(answer, job_id, submits)
        raise refusal(answer, submission.queue_limit)
    for _ in range(CLAIM_TRIES):
        admitted = await _admit_claimed(context, mint, submission, submission.key_hash)
        if admitted is not None:
            return admitted
    raise StoreUnavailable("the key is being claimed and refused over and over")


async def _admit_claimed(context: Context, mint: Mint, submission: Submission, key_hash: str) -> Admitted | None:
    """Claim, then admit with the claimed id; None when the id turned out to be refused for good: claim again."""
    pool = submission.draft.pool
    claims = context.store.claims
    ttl_s = int(context.settings.retention.idempotency_s)
    candidate = mint.job_id(context.pool(pool).code)
    per_minute = submission.limits.submits_per_minute
    claim = await context.within(
        claims.claim(submission.tenant_id, key_hash, submission.fingerprint, candidate, pool, ttl_s, per_minute)
    )
    if claim.word is Word.REFUSED and per_minute is not None and claim.submits is not None:
        raise too_fast(per_minute, claim.submits)
    if claim.word is not Word.APPLIED:
        raise Problem("idempotency_mismatch", "This Idempotency-Key was used with another body or pool")
    if claim.state not in ("new", "pending"):
        return Admitted(claim.job_id, is_repeat=True, last_status=claim.state, submits=claim.submits)
    if submission.refused is not None:
        return await _find_admitted(context, submission, key_hash, claim.job_id)
    answer = await _admit_once(context, submission, claim.job_id)
    if answer.word is Word.APPLIED:
        await _mark_done(context, submission, key_hash, claim.job_id, answer.same_as)
        return _admitted(answer, claim.job_id, claim.submits)
    if answer.state == "refused-before":
        await context.within(claims.drop(submission.tenant_id, key_hash, claim.job_id))
        return None
    if answer.word is Word.REFUSED and await _give_back(context, submission, key_hash, claim.job_id):
        return None
    raise refusal(answer, submission.queue_limit)


def _admitted(answer: Admission, job_id: str, submits: Submits | None) -> Admitted:
    if answer.state == "same-as":
        return Admitted(answer.same_as, is_duplicate=True, submits=submits)
    is_repeat = answer.state in ("repeat", "forgotten")
    last_status = "queued" if is_repeat else None
    return Admitted(job_id, answer.position, answer.sequence, is_repeat, last_status, submits=submits)


async def take_submit(context: Context, tenant_id: str, limits: Limits) -> Submits | None:
    """Count a submit that has no key. Raises Problem `rate_limited`."""
    per_minute = limits.submits_per_minute
    if per_minute is None:
        return None
    submits = await context.within(context.store.claims.take_submit(tenant_id, per_minute))
    if submits.wait_ms:
        raise too_fast(per_minute, submits)
    return submits


async def _find_admitted(context: Context, submission: Submission, key_hash: str, job_id: str) -> Admitted:
    """Answer a repeat while nothing new is admitted. Raises Problem with the reason when there is no job yet."""
    pool = submission.draft.pool
    history = await context.within(context.store.jobs.history(pool, job_id, limit=0))
    if history is None and not await _give_back(context, submission, key_hash, job_id):
        raise submission.refused or Problem("storage_full")
    return Admitted(job_id, is_repeat=True, last_status="queued")


async def _admit_once(context: Context, submission: Submission, job_id: str) -> Admission:
    draft = submission.draft
    server_ms = context.readiness.server_ms()
    wait_ms = context.settings.ingest.store_timeout_s * 1000 * DEADLINE_RATIO
    deadline_ms = 0 if server_ms is None else server_ms + int(wait_ms)
    dedup, limits = draft.dedup, submission.limits
    if dedup is not None and submission.key_hash is not None:
        # Under this key the claimed id stands for the job that is found, also when nobody hears of it now.
        dedup = replace(dedup, keep_s=int(context.settings.retention.idempotency_s))
    if submission.queue_limit is not None:
        limits = limits._replace(tenant_jobs=submission.queue_limit)
    if files := [each for each in draft.files if is_upload_id(each)]:
        # Said before the job is there, so that they are not removed with another job that is erased meanwhile.
        keep_s = int(context.settings.retention.artifacts_s)
        calls = context.store.erasing
        await context.within(calls.use_files(submission.tenant_id, files, draft.pool, job_id, keep_s))
    call = context.store.jobs.admit(
        draft.pool,
        draft.write(job_id),
        draft.body,
        submission.tenant_id,
        limits,
        deadline_ms=deadline_ms,
        dedup=dedup,
    )
    try:
        return await context.within(call)
    except Unconfirmed:
        raise Problem("unconfirmed", _UNCONFIRMED[submission.key_hash is None]) from None


async def _give_back(context: Context, submission: Submission, key_hash: str, job_id: str) -> bool:
    """Free the key of a refused submission; True when the job was admitted after all by a twin of this request.

    The id is marked first: once nobody can admit it, dropping the claim cannot lose a job. Where it cannot be
    marked the claim stays pending, and a repeat goes on from there.
    """
    ttl_s = int(context.settings.retention.idempotency_s)
    try:
        marked = await context.within(context.store.jobs.refuse(submission.draft.pool, job_id, ttl_s))
        if marked.word is Word.APPLIED:
            await context.within(context.store.claims.drop(submission.tenant_id, key_hash, job_id))
        return marked.word is Word.CONFLICT
    except StoreUnavailable as error:
        log.warning("claim_left_pending", job_id=job_id, reason=str(error))
        return False


async def _mark_done(context: Context, submission: Submission, key_hash: str, job_id: str, same_as: str) -> None:
    # The job is durable; a claim that stays pending only costs the next repeat one more call.
    try:
        await context.within(
            context.store.claims.done(submission.tenant_id, key_hash, job_id, "queued", same_as=same_as)
        )
    except HeadraceError as error:
        log.warning("claim_not_marked", job_id=job_id, reason=str(error))


def read_key(header: str | None) -> str | None:
    """Return the hash of an Idempotency-Key header, quoted or not; None without one.

    Raises Problem `missing_idempotency_key` for a malformed one.
    """
    if header is None:
        return None
    text = header.strip()
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = text[1:-1]
    if not 0 < len(text) <= MAX_KEY_LENGTH or not text.isprintable():
        raise Problem("missing_idempotency_key", f"An Idempotency-Key has 1 to {MAX_KEY_LENGTH} printable characters")
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def item_key(key_hash: str | None, index: int) -> str | None:
    """Return the key of one item of a batch: the batch's key and its place in it.

    >>> item_key("ab", 0) == item_key("ab", 0) != item_key("ab", 1), item_key(None, 0)
    (True, None)
    """
    return None if key_hash is None else hashlib.sha256(f"{key_hash}\n{index}".encode()).hexdigest()
