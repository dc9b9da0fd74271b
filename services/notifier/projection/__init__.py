"""The projection: events of a pool's log become stored deliveries, in an agent of Faust.

Owns: who reads the log, in which batches, and when a batch is done with.
Promises: a batch is given back only after its deliveries are stored; no exception leaves the agent; what ends the
processes that handle it is set aside after three tries alone.
If killed: what was in hand is read again, by this consumer or by another one after seconds.
"""
