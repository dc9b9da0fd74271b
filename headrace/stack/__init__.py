"""The local stack: the embedded store and one process per service, from the code that production runs.

`stack.py` composes; `claim.py` takes the data directory, `port.py` the port; `keys_file.py` and `bootstrap.py` make
the tenant and the keys a newcomer needs; `plan.py` says which processes run with which environment; `child.py` keeps
one of them running, `readiness.py` waits for all; `keeper.py` and `leash.py` see to it that none outlives
`headrace up`, however that ended; `logs.py` bounds the logs.
"""
