"""Deliveries of webhooks; their subject is the delivery, never the job."""

from typing import ClassVar

from contracts.events.root import Event


class WebhookAttempted(Event):
    """notifier: one HTTP attempt with its outcome."""

    TYPE: ClassVar[str] = "webhook.attempted"
    delivery_id: str
    job_id: str
    event_type: str
    attempt: int
    outcome: str
    status: int | None = None
    ms: int = 0
    next_at_ms: int | None = None
    endpoint_id: str | None = None
    tenant_id: str | None = None  # whose it is, and of which model: the job may be forgotten long before
    model: str | None = None


class WebhookExhausted(Event):
    """notifier: the schedule is used up, or the endpoint is gone; the delivery is a dead letter."""

    TYPE: ClassVar[str] = "webhook.exhausted"
    delivery_id: str
    job_id: str
    event_type: str
    attempts: int
    outcome: str
    endpoint_id: str | None = None
