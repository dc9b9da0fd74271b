"""HTTP to addresses that callers chose: webhooks and input files. No other socket of ours goes where a tenant says.

`guard` makes the sockets and judges each address at the moment of connecting (the rules are in `webhook_target.py`),
`names` looks names up, `fetch` brings a file, `terms` says within which bounds and how that fails.
"""
