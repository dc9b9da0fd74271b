"""The mirror: every pool's log once more in a topic of Kafka, a process of its own, off unless a topic is named.

Owns: the group `mirror` of each pool's log, which stands at what the broker has acknowledged.
Reads: the logs, the archive below them, the jobs that events are of.
Writes: records into the topic, keyed by what an event is about; what can be no record, to `poison`.
Promises: no event is left out; the events of a job stand in the topic in their order, once repeated positions are
dropped. Does not promise that nothing is there twice: what was sent and not yet said is sent again.
If killed: the next one goes on at the cursor, when the lease of the pool ends.
"""
