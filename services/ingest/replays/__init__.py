"""Replays that compute: a projection as it was, and what another policy would have done. Each in a process of its own,
which reads archive and log, answers, and can reach nothing.
"""
