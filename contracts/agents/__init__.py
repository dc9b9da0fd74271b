"""Agents of Faust over logs: what a service is that reads batches of entries and makes something of each.

`batch` is what an agent is given, `frontier` where our types end and Faust begins, `reading` what feeds an agent,
`beside` what runs next to it, `assembling` puts them together.
Promises: a batch is given back only after its body; no broker is talked to, and no table is kept.
Imported late, and in a thread: Faust takes half a second.
"""
