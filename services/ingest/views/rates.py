"""`RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers) of a tenant. Pure.

Promises: a tenant without such limits gets no such header; what is said to be left is never more than the policy's
quota, though after a pause twice as many submits pass at once.
"""

from dataclasses import dataclass

from contracts.events import TenantLimits
from contracts.store.replies import Submits

SUBMIT, GPU = "submit", "gpu"
MINUTE_S, DAY_S = 60, 86_400


@dataclass(frozen=True, slots=True)
class GpuLeft:
    """What is left of a day's GPU-seconds, and how long the day still lasts."""

    left_s: int
    reset_s: int


def rate_headers(limits: TenantLimits, submits: Submits | None = None, gpu: GpuLeft | None = None) -> dict[str, str]:
    """Return the header fields; what is not known at the moment is left out of `RateLimit`.

    >>> rate_headers(TenantLimits(submits_per_minute=600), Submits(599))
    {'RateLimit-Policy': '"submit";q=600;w=60', 'RateLimit': '"submit";r=599;t=1'}
    """
    policies, states = [], []
    if limits.submits_per_minute is not None:
        policies.append(f'"{SUBMIT}";q={limits.submits_per_minute};w={MINUTE_S}')
        if submits is not None:
            left = min(submits.left, limits.submits_per_minute)
            states.append(f'"{SUBMIT}";r={left};t={refill_s(limits.submits_per_minute, submits)}')
    if limits.gpu_seconds_per_day is not None:
        policies.append(f'"{GPU}";q={limits.gpu_seconds_per_day};qu="gpu-seconds";w={DAY_S}')
        if gpu is not None:
            states.append(f'"{GPU}";r={gpu.left_s};t={gpu.reset_s}')
    fields = {"RateLimit-Policy": ", ".join(policies), "RateLimit": ", ".join(states)}
    return {name: value for name, value in fields.items() if value}


def refill_s(per_minute: int, submits: Submits) -> int:
    """Return in how many seconds a minute's worth may be submitted at once again.

    >>> refill_s(60, Submits(59)), refill_s(60, Submits(0, wait_ms=500)), refill_s(60, Submits(80))
    (1, 60, 0)
    """
    missing = max(0, per_minute - submits.left)
    return -(-missing * MINUTE_S // per_minute)
