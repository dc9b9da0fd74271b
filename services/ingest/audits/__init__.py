"""Audits that are asked for through the API: `worker` has a process of its own do them, `handlers` show them."""
