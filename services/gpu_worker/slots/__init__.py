"""One slot of a device. Knows nothing of the store: attempts go in, outcomes come out.

`slot` runs attempts, a pass at a time (`one_pass`): `loading` has its model, `hearing` takes what is said, `stopping`
ends it, `quarantine` is when nothing may run. `outcome` and `watchdog` are the rules, without a clock.
"""
