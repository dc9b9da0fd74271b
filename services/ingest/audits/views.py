"""An audit as the API shows it. Pure."""

from typing import Any

import orjson

from contracts.asked_audit import AskedAudit
from contracts.times import instant
from services.ingest.views.body_lines import JsonObject


def audit_view(audit: AskedAudit) -> JsonObject:
    """Return an audit; what came of it is what the command line prints."""
    pools: list[Any] = orjson.loads(audit.document)["pools"] if audit.document else []
    bad = next((each["firstBadPosition"] for each in pools if each["firstBadPosition"]), None)
    chains = [each["chainOk"] for each in pools if each["chainOk"] is not None]
    return {
        "id": audit.id,
        "object": "audit",
        "status": "running" if not audit.done_ms else "failed" if audit.error else "done",
        "repair": audit.repairs,
        "pool": audit.pool or None,
        "jobId": audit.job_id or None,
        "tenantId": audit.tenant_id or None,
        "after": audit.after or None,
        "until": audit.until or None,
        "reason": audit.reason,
        "by": audit.by,
        "askedAt": instant(audit.asked_ms),
        "endedAt": instant(audit.done_ms) if audit.done_ms else None,
        "ok": all(each["ok"] for each in pools) if pools else None,
        "events": sum(each["events"] for each in pools) if pools else None,
        "chainOk": all(chains) if chains else None,
        "firstBadPosition": bad,
        "pools": pools,
        "error": audit.error or None,
        "urls": {"self": f"/v1/audit/verify/{audit.id}"},
    }
