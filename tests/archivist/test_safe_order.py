"""The safe order: whatever step the archivist dies at, nothing is missing, nothing doubled, nothing unread trimmed."""

import random
from collections import Counter

import pytest

from contracts.store import keys
from contracts.usage.rows import GPU_MS
from tests.archivist.rig import POOL, Fault, Pool, in_order

STEPS = [
    f"{when} {what}"
    for what in ("put_file", "bodies", "seal", "tally", "trim", "forget")
    for when in ("before", "after")
]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
async def test_a_death_at_any_step_loses_and_doubles_nothing(pool: Pool, seed: int) -> None:
    """Field case 79 for the archive: a crash between two writes is found and mended, whichever two they are.

    What tenants used counts each entry once, too, however often its counting was cut off.
    """
    chance, died, read = random.Random(seed), Counter[str](), list[str]()
    open_jobs: list[str] = []

    for round_number in range(60):
        open_jobs += [await pool.job() for _ in range(chance.randrange(4))]
        for job_id in [open_jobs.pop(chance.randrange(len(open_jobs))) for _ in range(len(open_jobs) // 2)]:
            await (pool.run(job_id, chance.randrange(9_000)) if chance.random() < 0.5 else pool.cancel(job_id))
        await pool.look()
        if chance.random() < 0.7:
            await pool.snapshot_here()
        read += await pool.plan(chance.randrange(1, 9))
        step = STEPS[(round_number * 7 + seed) % len(STEPS)]

        def gate(reached: str, step: str = step) -> None:
            if reached == step:
                died[step] += 1
                raise Fault(step)

        archivist = pool.archivist(gate)
        try:
            await archivist.run_once()
        except Fault:
            pass
        finally:
            await archivist._resign()
        await pool.look()

    await pool.snapshot_here()
    read += await pool.plan()
    last = pool.archivist()
    await last.run_once()
    await pool.look()
    await last.run_once()  # seals what it wrote itself
    await pool.look()

    assert set(died) >= {*STEPS} - {"before forget", "after forget"}
    assert sum(died.values()) > 30
    assert await pool.everything() == in_order(pool.seen)
    archived = await pool.archived()
    assert archived == in_order(pool.seen)[: len(archived)]
    kept = {position.decode() for position, _ in await pool.store.client.xrange(keys.log(POOL))}
    assert read == in_order(pool.seen)[: len(read)]  # the group got every one, once, in order
    assert len(kept) < len(pool.seen)
    look, folded = await pool.used()
    assert (look.counted.upto, look.rows) == (archived[-1], folded)
    assert sum(row[GPU_MS] for row in folded.values()) > 100_000
