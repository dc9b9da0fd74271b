"""Where a tenant's webhooks may go, judged as text at the door: no look-up, no connection.

The same URL is judged again by whoever connects, and then its address is, too.
"""

from functools import lru_cache

from contracts.webhook_hosts import is_listed
from contracts.webhook_target import AllowPrivate, TargetFault, explain, judge_url
from services.ingest.context import Context
from services.ingest.edge.problems import Fault, Problem

_NOT_LISTED = "must lead to one of the hosts that the operator has listed for this tenant"


def check_target(context: Context, tenant_id: str, url: str, pointer: str) -> None:
    """Judge the URL of a webhook. Raises Problem `webhook_url_not_allowed`; nothing of the URL is repeated."""
    webhook = context.settings.webhook
    fault = _judged(url, webhook.allow_private, webhook.ports)
    if fault is not None:
        raise _not_allowed(pointer, fault, explain(fault, webhook.ports))
    tenant = context.store.directory.configuration.tenants.get(tenant_id)
    hosts = None if tenant is None else tenant.webhook_hosts
    if hosts is not None and not is_listed(url, hosts):
        raise _not_allowed(pointer, "host_not_listed", _NOT_LISTED)


@lru_cache(maxsize=1_024)
def _judged(url: str, allow_private: AllowPrivate, ports: frozenset[int]) -> TargetFault | None:
    # Most jobs of an application name the same URL.
    return judge_url(url, allow_private, ports)


def _not_allowed(pointer: str, code: str, sentence: str) -> Problem:
    return Problem("webhook_url_not_allowed", f"{pointer[1:]} {sentence}", (Fault(pointer, code, sentence),))
