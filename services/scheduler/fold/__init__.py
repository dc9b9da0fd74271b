"""What the scheduler knows: a strict fold of one pool's log. Pure.

`state.PoolState.apply(entry)` is the only thing that changes it for good; `policy.choose` borrows it and gives it back.
"""
