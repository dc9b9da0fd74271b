"""HTTP to addresses that callers chose: webhooks and input files. No other socket of ours goes where a tenant says.

`guard` connects, and judges each address at that moment (the rules are in `webhook_target.py`); `names` and
`nameservers` look names up; `tunnel` goes through the operator's proxy; `exchange` sends one request on a `connection`
and takes its answer, which `answer` reads; `kept` holds connections for a moment; `fetch` brings a file; `terms` says
by which way, within which bounds, and how that fails.
"""
