"""The language of Headrace: everything two services must agree on, and nothing else.

Read `events.py` (what can happen), then `job.py` (what a job may do next), then `wire.py` (how both
are written down). `store/` is the only code that speaks Redis, `artifacts/` to an object store,
`outbound/` to addresses that callers chose. `contracts` imports no service.

To change the language: add a field with a default, or raise the version of an event, write an upcaster
in `wire.py` and add a golden file; a golden file that exists is never changed.
"""
