"""Runs author code on this host's devices: one supervisor, one child process per slot.

Owns: the devices it has locked, the children on them, scratch directories.
Reads: its own work stream (offers, withdrawals, cancels), pipelines.toml; files that jobs are given, stored or by URL.
Writes: worker registrations and heartbeats; of its attempts: starts, telemetry, milestones, ends, files, logs.
Promises: author code runs only after an accepted start; an attempt has one outcome; nothing outlives the supervisor.
If killed: the kernel ends its children; the leader gives its attempts to others, at once if a successor is here.
"""
