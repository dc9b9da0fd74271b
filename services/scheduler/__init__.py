"""The scheduler: events in, order out.

Owns: who runs where and when: offers, priority and fairness, leases, the start-by and run-for clocks, retries' delays,
    forgetting and trimming until the archivist does it.
Reads: the pool's log, entry by entry, as a strict fold; the workers' heartbeat counters; the weights of tenants.
Writes: turns, one function call each: job.queued, job.assigned, job.unassigned, job.expired, job.lease_lost and what
    follows from it, job.forgotten, worker.lost, policy.applied, scheduler.mismatch; work entries for workers.
Promises: one leader per pool at a time, all others fenced; every choice can be computed again from the log; a store
    outage, a pause or a takeover costs no attempt its lease; no job is on two decks' way to run twice.
If killed: the next candidate takes the token when the lease ends, folds to the end of the log and goes on.
"""
