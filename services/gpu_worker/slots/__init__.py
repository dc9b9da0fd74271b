"""One slot of a device and the child in it. Knows nothing of the store: attempts go in, outcomes come out.

`slot` runs attempts; `child_process`, `child_log` and `memory` are the child as a process; `frames` is the parent's
half of its language; `outcome` and `watchdog` are the rules, without a clock.
"""
