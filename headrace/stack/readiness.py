"""Wait until a stack can run jobs, or say why it never will.

Ready means: ingest answers, may write to the log, and lists every worker that was started.
"""

import asyncio
from collections.abc import Sequence

from contracts.errors import ConfigError, Unavailable
from headrace.client import Client, Problem, Unreachable
from headrace.stack.child import Child

_POLL_S = 0.05
_CONFIGURATION_FAULT = 2


async def wait_ready(client: Client, children: Sequence[Child], limit_s: float) -> None:
    """Return when the stack is ready.

    Raises:
        ConfigError: a service refused its configuration; no restart would help.
        Unavailable: not ready in time; the text holds the ends of the logs.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + limit_s
    while not await _is_ready(client, children):
        faulty = [child for child in children if child.last_exit == _CONFIGURATION_FAULT]
        if faulty:
            raise ConfigError([f"{child.spec.name} refuses its configuration:\n{child.log.tail()}" for child in faulty])
        if loop.time() > deadline_s:
            raise Unavailable("the stack", f"it was not ready after {limit_s:.0f} s\n{_tails(children)}")
        await asyncio.sleep(_POLL_S)


async def _is_ready(client: Client, children: Sequence[Child]) -> bool:
    workers = {child.pid for child in children if child.spec.service == "gpu_worker"}
    try:
        await _try_ready(client)
        listed = (await client.try_get("/admin/v1/workers")).body["data"]
    except (Unreachable, Problem):
        return False
    return None not in workers and workers <= {worker["pid"] for worker in listed}


async def _try_ready(client: Client) -> None:
    """Raise what is not ready; what a leader once set aside must not keep the stack from starting: it can run jobs."""
    try:
        await client.try_get("/readyz")
    except Problem as problem:
        if not str(problem.document.get("reason", "")).startswith("scheduler_mismatch"):
            raise


def _tails(children: Sequence[Child]) -> str:
    return "\n".join(f"{child.log.path}:\n{child.log.tail()}" for child in children)
