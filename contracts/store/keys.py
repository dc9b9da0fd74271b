"""Every key name. All keys of a pool carry its hash tag, so that one function call may touch them together.

Texts of users never become part of a key: ids are minted by us, tenant and pool names are checked by `ids.py`.
"""

SYSTEM = "_sys"
GROUP_WORK = "gpu"
GROUP_NOTIFIER = "notifier"
GROUP_MIRROR = "mirror"  # only where the log is mirrored, or was
GROUP_SCHEDULER = "scheduler"
ENDED_KINDS = ("completed", "failed")  # retention differs: completed ones, and all others
LOG_GROUPS = (GROUP_SCHEDULER, GROUP_NOTIFIER)


def log(pool: str) -> str:
    """Stream: the event log of the pool, the only truth. Trimmed by the leader."""
    return f"hr:{{{pool}}}:log"


def job(pool: str, job_id: str) -> str:
    """Hash: folded small fields of a job (`contracts.job.FIELDS`). Removed by `forget`, never by time."""
    return f"hr:{{{pool}}}:job:{job_id}"


def body(pool: str, job_id: str) -> str:
    """String: lines of JSON; the first is the spec, later ones result and error text. All personal content."""
    return f"hr:{{{pool}}}:body:{job_id}"


def jobs(pool: str, tenant_id: str) -> str:
    """Zset: the tenant's job ids, score 0 open, 1 closed."""
    return f"hr:{{{pool}}}:jobs:{tenant_id}"


def admitted(pool: str, job_id: str) -> str:
    """String with TTL: the id was admitted and forgotten (its last position), or `refused` for good."""
    return f"hr:{{{pool}}}:admitted:{job_id}"


def dedup_in_flight(pool: str, tenant_id: str) -> str:
    """Hash: dedup key (keyed digest) -> the job that holds it until it ends."""
    return f"hr:{{{pool}}}:dedup:{tenant_id}"


def dedup_for_a_time(pool: str, tenant_id: str, dedup_hash: str) -> str:
    """String with TTL: the job that holds a dedup key for a time, however it ends."""
    return f"hr:{{{pool}}}:dedup:{tenant_id}:{dedup_hash}"


def usage(pool: str) -> str:
    """Hash: open jobs (`jobs`), their bytes (`bytes`, `b:<tenant>`); what admission reads."""
    return f"hr:{{{pool}}}:usage"


def work(pool: str, worker_id: str) -> str:
    """Stream, group `gpu`: offers, withdrawals, cancels for one worker."""
    return f"hr:{{{pool}}}:work:{worker_id}"


def worker(pool: str, worker_id: str) -> str:
    """Hash: registration, heartbeat counter `b`, `held`, `seen`, decks `d<slot>`. Removed when lost or drained."""
    return f"hr:{{{pool}}}:worker:{worker_id}"


def workers(pool: str) -> str:
    """Set: ids of the workers that have a hash."""
    return f"hr:{{{pool}}}:workers"


def leader(pool: str) -> str:
    """Hash: epoch, token, until, turn and its verdicts. Never expires."""
    return f"hr:{{{pool}}}:leader"


def snapshot(pool: str) -> str:
    """Hash: id, position and digest of the scheduler's newest snapshot. Moves forward only."""
    return f"hr:{{{pool}}}:snapshot"


def snapshot_parts(pool: str, snapshot_id: str) -> str:
    """List: the parts of one snapshot in order; with TTL until the pointer names it."""
    return f"hr:{{{pool}}}:snapshot:{snapshot_id}"


def archive(pool: str) -> str:
    """Hash: the archivist's token and until, how far the log is sealed (`upto`, `digest`). While it is there, nobody
    but the archivist forgets a job or trims the log."""
    return f"hr:{{{pool}}}:archive"


def dead_letters(pool: str) -> str:
    """Zset: jobs that failed for good and wait for a person, by when they failed."""
    return f"hr:{{{pool}}}:dlq"


def mirror(pool: str) -> str:
    """Hash: the mirror's token and until, its topic, why it copies nothing, counts; `sent:<partition>` and
    `planned:<partition>`: how far each is written, and planned by notifiers that read it."""
    return f"hr:{{{pool}}}:mirror"


def used(pool: str) -> str:
    """Hash: up to where of the log what tenants used is counted (`upto`), the attempts under way there, since when."""
    return f"hr:{{{pool}}}:used"


def used_on(pool: str, day: str) -> str:
    """Hash: tenant -> what it used on a UTC day, a line for each model (`contracts.usage.rows`)."""
    return f"hr:{{{pool}}}:used:{day}"


def ended(pool: str, kind: str) -> str:
    """Zset: jobs whose last event is sealed, by when they ended; `kind` is one of `ENDED_KINDS`."""
    return f"hr:{{{pool}}}:ended:{kind}"


def erasing(pool: str) -> str:
    """Hash: job -> what of an erased job is still to be removed (JSON, `contracts/erasure.py`)."""
    return f"hr:{{{pool}}}:erasing"


def meta(pool: str) -> str:
    """Hash: layout, epoch, cursors of the groups; `trimmed`: entries below it may be gone from the log;
    `audited`: when the whole pool was last verified, and whether all was right."""
    return f"hr:{{{pool}}}:meta"


def deliveries(pool: str) -> str:
    """Prefix of the keys of deliveries: only inside a call it is known which they are (`lua/_deliveries.lua`)."""
    return f"hr:{{{pool}}}:"


def due(pool: str) -> str:
    """Zset: endpoint -> when it next has something to do."""
    return f"hr:{{{pool}}}:due"


def due_of(pool: str, endpoint: str) -> str:
    """Zset: the endpoint's waiting deliveries by due time; of a claimed one the end of its claim."""
    return f"hr:{{{pool}}}:due:{endpoint}"


def flight(pool: str, endpoint: str) -> str:
    """Zset: the endpoint's claimed deliveries by the end of the claim."""
    return f"hr:{{{pool}}}:flight:{endpoint}"


def endpoint(pool: str, name: str) -> str:
    """Hash: how an endpoint does: failures in a row, circuit, rate."""
    return f"hr:{{{pool}}}:endpoint:{name}"


def endpoint_stats(pool: str, name: str) -> str:
    """Hash with TTL: an endpoint's attempts by hour and by how long they took."""
    return f"hr:{{{pool}}}:stats:{name}"


def dead(pool: str, endpoint: str) -> str:
    """Zset: the endpoint's deliveries that were given up or held, by when."""
    return f"hr:{{{pool}}}:dead:{endpoint}"


def settled(pool: str) -> str:
    """Zset: deliveries that are done with, by when they are to be forgotten."""
    return f"hr:{{{pool}}}:settled"


def deliveries_of(pool: str, tenant_id: str) -> str:
    """Zset, all scores 0: the ids of a tenant's deliveries."""
    return f"hr:{{{pool}}}:deliveries:{tenant_id}"


def chain(pool: str, endpoint: str, job_id: str) -> str:
    """Zset with TTL: what goes to an endpoint in strict order, by sequence; only the first is due."""
    return f"hr:{{{pool}}}:chain:{endpoint}:{job_id}"


def order(pool: str, endpoint: str, job_id: str) -> str:
    """Hash with TTL: what of a job an endpoint was told last, and which progress waits."""
    return f"hr:{{{pool}}}:order:{endpoint}:{job_id}"


def outcomes(pool: str) -> str:
    """Hash: outcome -> attempts to deliver, ever."""
    return f"hr:{{{pool}}}:outcomes"


def delivery(pool: str, delivery_id: str) -> str:
    """Hash: one webhook delivery: exact bytes, state, tries, each attempt."""
    return f"hr:{{{pool}}}:delivery:{delivery_id}"


def backfills(pool: str) -> str:
    """Hash: backfill id -> what is to be sent to an endpoint from the log, and how far that is (JSON)."""
    return f"hr:{{{pool}}}:backfills"


def backfill_leases(pool: str) -> str:
    """Hash: backfill id -> which notifier works on it, and until when that is its own."""
    return f"hr:{{{pool}}}:backfill_leases"


def letter_work(pool: str) -> str:
    """Hash: operation id -> which dead letters are to be redriven or discarded, and how far that is (JSON)."""
    return f"hr:{{{pool}}}:letter_work"


def letter_leases(pool: str) -> str:
    """Hash: operation id -> which process works on it, and until when that is its own."""
    return f"hr:{{{pool}}}:letter_leases"


def audit_work(pool: str) -> str:
    """Hash: audit id -> what is to be audited, and what came of it (JSON)."""
    return f"hr:{{{pool}}}:audit_work"


def audit_leases(pool: str) -> str:
    """Hash: audit id -> which process works on it, and until when that is its own."""
    return f"hr:{{{pool}}}:audit_leases"


def poison(pool: str) -> str:
    """Stream, capped: entries that a reader could not read, with the reason."""
    return f"hr:{{{pool}}}:poison"


def questions(pool: str) -> str:
    """Stream, capped, with TTL: what other processes ask the leader. Nothing of it is kept."""
    return f"hr:{{{pool}}}:questions"


def answers(pool: str, asker: str) -> str:
    """Stream, capped, with TTL: what the leader answered this process."""
    return f"hr:{{{pool}}}:answers:{asker}"


def live(pool: str) -> str:
    """Stream, capped, with TTL: what running attempts print. Nothing of it is kept."""
    return f"hr:{{{pool}}}:live"


def claim(tenant_id: str, key_hash: str) -> str:
    """Hash with TTL: the claim of one Idempotency-Key; lives in the tenant's slot, not in a pool's."""
    return f"hr:{{idem:{tenant_id}}}:{key_hash}"


def submits(tenant_id: str) -> str:
    """Hash with TTL: what its bucket of submits holds (`n`) as of `at`; in the slot of its claims."""
    return f"hr:{{idem:{tenant_id}}}:submits"


def uploads(tenant_id: str) -> str:
    """Hash with TTL: how many bytes the tenant may announce, `n` parts as of `at`; in the slot of its claims."""
    return f"hr:{{idem:{tenant_id}}}:uploads"


def file_uses(tenant_id: str, artifact_id: str) -> str:
    """Set with TTL: `<pool> <job>` of each job that names a file that was sent; in the slot of its tenant's claims."""
    return f"hr:{{idem:{tenant_id}}}:uses:{artifact_id}"


def resource(name: str) -> str:
    """Hash with TTL: what was granted of an external limit in its window, and until when it is paused; in {_sys}."""
    return f"hr:{{{SYSTEM}}}:resource:{name}"


def secret(name: str) -> str:
    """String: a secret that must be usable, so it cannot be hashed; never in the log."""
    return f"hr:{{{SYSTEM}}}:secret:{name}"
