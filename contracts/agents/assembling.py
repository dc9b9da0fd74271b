"""Agents and what feeds them as one Faust app: it runs between `start` and `stop`."""

from collections.abc import Callable, Mapping, Sequence

from mode import Service

from contracts.agents.batch import Batch
from contracts.agents.beside import Supervisor
from contracts.agents.frontier import AgentApp, BatchChannel, Body

HandOver = Callable[[Batch], None]
Feed = Callable[[Mapping[str, HandOver]], Sequence[Service]]  # what agents of these pools are to be fed by


def assemble(
    name: str, verb: str, bodies: Mapping[str, Body], feed: Feed, beside: Sequence[Service] = ()
) -> AgentApp:  # fmt: skip
    """Put an app together, with an agent `<verb>-<pool>` for each pool; `crashed` says that it cannot go on."""
    app = AgentApp(name)
    channels: dict[str, HandOver] = {}
    for pool, body in bodies.items():
        channel = BatchChannel(app)
        app.add_agent(f"{verb}-{pool}", channel, body)
        channels[pool] = channel.hand_over
    app.run_beside(Supervisor(*feed(channels), *beside))
    return app
