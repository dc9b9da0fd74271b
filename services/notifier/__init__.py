"""Events in, signed webhooks out.

Owns: deliveries: which there are, when the next attempt is due, what became of each; how far backfills are.
Reads: the log of every pool and of the configuration as group `notifier`; the jobs of what somebody wants; endpoints
and their secrets.
Writes: planned deliveries in the call that acknowledges their events; `webhook.attempted` and `webhook.exhausted`.
Promises: each subscribed event is delivered at least once or ends as a dead letter, always with the same id and
bytes; any number of processes share the work and none of them leads.
If killed: events it held are planned by others after seconds, claimed deliveries are due again when their claim
runs out, and an attempt that was under way is made again under the same number.
"""
