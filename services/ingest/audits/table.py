"""The rows of the route table about audits."""

from contracts.audit_api import AuditCreate, RepairCreate
from services.ingest.audits import schemas
from services.ingest.audits.handlers import AuditHandlers
from services.ingest.routes import Parameter, Route

_WRONG = ("audit_under_way", "pool_not_found", "job_not_found", "tenant_not_found", "bad_parameter")


def audit_routes(audits: AuditHandlers) -> tuple[Route, ...]:
    """Return the routes about audits."""
    verify, asked = "/v1/audit/verify", ((202, "It will be done; look again at `urls.self`."),)
    return (
        Route("POST", verify, audits.create_audit, "Have the live state compared with the log, and the log checked.",
              "audit:read", body=AuditCreate, needs_body=False, replies=asked, reply=schemas.Audit, problems=_WRONG),
        Route("GET", verify + "/{id}", audits.get_audit, "Show what came of an audit.", "audit:read",
              reply=schemas.Audit, problems=("audit_not_found", "bad_parameter")),
        Route("POST", "/v1/audit/repair", audits.create_repair, "Have what differs from the log made anew.", "admin",
              body=RepairCreate, replies=asked, reply=schemas.Audit, problems=_WRONG),
        Route("GET", "/v1/audit/checkpoints", audits.list_checkpoints, "List what was signed of a pool's log.",
              "audit:read", reply=schemas.CheckpointPage,
              problems=("bad_cursor", "bad_parameter", "pool_not_found", "cursor_expired"),
              parameters=(
                  Parameter("pool", "The first pool when it is left out."),
                  Parameter("limit", "Most items of one page.", kind="integer"),
                  Parameter("cursor", "`nextCursor` of the page before, with the same pool."),
              )),
    )  # fmt: skip
