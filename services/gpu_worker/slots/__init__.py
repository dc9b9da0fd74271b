"""One slot of a device and the child in it. Knows nothing of the store: attempts go in, outcomes come out.

`slot` runs attempts, a pass at a time (`one_pass`): `loading` has its model, `hearing` takes what is said, `stopping`
ends it. `resident` is a child with its model; `child_process`, `child_log` and `memory` are the child as a process;
`frames`, `decoding` and `encoding` are the parent's half of its language; `outcome` and `watchdog` are the rules,
without a clock.
"""
