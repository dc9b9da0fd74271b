"""Kafka as services use it: how to get there, one member of a group that reads a topic, one writer into a topic.

Promises: no secret of the connection is in a text or a log; whatever goes wrong on the way is `Unavailable`.
"""
