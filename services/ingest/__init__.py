"""Ingest: HTTP in, events out.

Owns: the public and the admin API, request limits, admission, Idempotency-Keys, uploads until they are completed, live
streams.
Reads: jobs, events and bodies of the store, the pipelines file, stored files and logs, what running jobs print.
Writes: job.created, job.scheduled, job.cancel_requested, job.cancelled; tenants and keys in the configuration log;
completed uploads.
Promises: 201 means durable; a repeat with the same Idempotency-Key never makes a second job; a caller hears within
two seconds when the store is away; nobody sees what belongs to another tenant.
If killed: an accepted connection breaks; a job is either admitted or it is not, and the same key finds out which.
"""
