"""The shapes of answers about what operators did."""

from services.ingest.views.schemas import Anything, Page, Shape


class Action(Shape):
    """What somebody did with the admin key: who, from where, why. `data` is that of the event."""

    id: str
    object: str
    type: str
    position: str
    time: str
    actor: str | None
    ip: str | None
    user_agent: str | None
    reason: str | None
    subject: str
    tenant_id: str | None
    data: dict[str, Anything]


class ActionPage(Page):
    """Actions, newest first unless asked otherwise."""

    data: list[Action]
