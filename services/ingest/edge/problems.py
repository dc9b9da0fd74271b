"""Errors as HTTP answers (RFC 9457): the only place that knows both a code and its status.

Promises: every refusal of the service is one row of `CATALOGUE`, has a stable `code`, says whether the same
request may be sent again (`retryable`), and repeats nothing secret. Renders documents; sends nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

JsonObject = dict[str, object]

POLICIES = "violated-policies"  # a member of the IANA problem type

_IANA = "https://iana.org/assignments/http-problem-types#"


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the catalogue. `retry_after_s` is the default pause told to the caller; None means none."""

    status: int
    title: str
    retryable: bool = False
    retry_after_s: int | None = None
    type_uri: str = ""
    closes_connection: bool = False


CATALOGUE: Mapping[str, Kind] = {
    "bad_request": Kind(400, "The request is malformed", closes_connection=True),
    "malformed_json": Kind(400, "The body is not one JSON object"),
    "missing_idempotency_key": Kind(400, "The Idempotency-Key is missing or malformed"),
    "bad_cursor": Kind(400, "The cursor belongs to another query"),
    "bad_parameter": Kind(400, "A parameter of the URL is wrong"),
    "unauthenticated": Kind(401, "A valid key is needed"),
    "missing_scope": Kind(403, "The key lacks a scope"),
    "bad_signature": Kind(403, "The signed URL is wrong or has expired"),
    "origin_not_allowed": Kind(403, "A page of another site may not do this"),
    "tenant_suspended": Kind(403, "The tenant is suspended"),
    "not_found": Kind(404, "There is nothing here"),
    "job_not_found": Kind(404, "There is no such job"),
    "event_not_found": Kind(404, "There is no such event"),
    "event_type_not_found": Kind(404, "There is no such type of events"),
    "replay_not_found": Kind(404, "There is no such replay"),
    "artifact_not_found": Kind(404, "There is no such artifact"),
    "upload_not_found": Kind(404, "There is no such upload"),
    "model_not_found": Kind(404, "There is no such model"),
    "tenant_not_found": Kind(404, "There is no such tenant"),
    "key_not_found": Kind(404, "There is no such key"),
    "pool_not_found": Kind(404, "There is no such pool"),
    "worker_not_found": Kind(404, "There is no such worker"),
    "endpoint_not_found": Kind(404, "There is no such webhook endpoint"),
    "dead_letter_not_found": Kind(404, "There is no such dead letter"),
    "audit_not_found": Kind(404, "There is no such audit"),
    "operation_not_found": Kind(404, "There is no such operation"),
    "consumer_not_found": Kind(404, "There is no such group of consumers"),
    "delivery_not_found": Kind(404, "There is no such delivery"),
    "method_not_allowed": Kind(405, "This method is not allowed here"),
    "request_timeout": Kind(408, "The request did not arrive in time", retryable=True, closes_connection=True),
    "already_terminal": Kind(409, "The job has ended"),
    "already_exists": Kind(409, "It exists already"),
    "version_mismatch": Kind(409, "It has changed in the meantime", retryable=True),
    "job_failed": Kind(409, "The job did not complete"),
    "not_retryable": Kind(409, "The job cannot be run again as it is now"),
    "not_reproducible": Kind(409, "What the job ran with is not to be had any more"),
    "job_not_ended": Kind(409, "The job has not ended"),
    "endpoint_disabled": Kind(409, "The webhook endpoint is disabled"),
    "not_redeliverable": Kind(409, "The delivery cannot be sent again as it is now"),
    "audit_under_way": Kind(409, "Another audit is under way", retryable=True),
    "consumer_in_use": Kind(409, "The group is being read"),
    "log_not_empty": Kind(409, "The pool has a log already"),
    "upload_incomplete": Kind(409, "The file was not sent yet"),
    "data_erased": Kind(410, "The content is gone"),
    "cursor_expired": Kind(410, "The cursor has expired"),
    "payload_too_large": Kind(413, "The body is too large", closes_connection=True),
    "unsupported_media_type": Kind(415, "The media type is not supported", closes_connection=True),
    "range_not_satisfiable": Kind(416, "The range lies outside the content"),
    "expectation_failed": Kind(417, "The expectation cannot be met", closes_connection=True),
    "invalid_input": Kind(422, "The input is not valid"),
    "unknown_field": Kind(422, "There is no such field"),
    "unschedulable": Kind(422, "No worker could ever run this"),
    "idempotency_mismatch": Kind(422, "The Idempotency-Key was used for another request"),
    "bad_export": Kind(422, "It is not a whole export"),
    "upload_rejected": Kind(422, "The file is not what was announced"),
    "webhook_url_not_allowed": Kind(422, "The webhook URL is not allowed"),
    "rate_limited": Kind(429, "Too many requests", retryable=True, retry_after_s=1),
    "quota_exceeded": Kind(
        429,
        "A limit of the tenant is reached",
        retryable=True,
        retry_after_s=5,
        type_uri=_IANA + "quota-exceeded",
    ),
    "headers_too_large": Kind(431, "The head is too large", closes_connection=True),
    "internal": Kind(500, "Something went wrong on our side", retryable=True),
    "overloaded": Kind(
        503,
        "The service has no room for this request",
        retryable=True,
        retry_after_s=1,
        type_uri=_IANA + "temporary-reduced-capacity",
        closes_connection=True,
    ),
    "queue_full": Kind(
        503,
        "The queue is full",
        retryable=True,
        retry_after_s=5,
        type_uri=_IANA + "temporary-reduced-capacity",
    ),
    "log_backlog": Kind(503, "The event log is behind", retryable=True, retry_after_s=10),
    "storage_full": Kind(503, "The store is full", retryable=True, retry_after_s=30),
    "log_unavailable": Kind(503, "The event log does not answer", retryable=True, retry_after_s=2),
    "unconfirmed": Kind(503, "The write is not confirmed", retryable=True, retry_after_s=1),
    "files_unavailable": Kind(503, "The store of files does not answer", retryable=True, retry_after_s=5),
    "scheduler_unavailable": Kind(503, "No scheduler answers for the pool", retryable=True, retry_after_s=2),
}

# What the HTTP layer itself may say, by status.
_BY_STATUS = {
    400: "bad_request",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "payload_too_large",
    415: "unsupported_media_type",
    416: "range_not_satisfiable",
    417: "expectation_failed",
    431: "headers_too_large",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong in a body: where (JSON Pointer), what (code), and a sentence for a person."""

    pointer: str
    code: str
    message: str


@dataclass(eq=False)
class Problem(Exception):
    """A refusal. Raised by handlers, rendered once by the outermost middleware."""

    code: str
    detail: str = ""
    faults: tuple[Fault, ...] = ()
    retry_after_s: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    extensions: Mapping[str, object] = field(default_factory=dict)

    @property
    def policies(self) -> tuple[str, ...]:
        """The limits that were reached, if this is about limits."""
        found = self.extensions.get(POLICIES, ())
        return tuple(found) if isinstance(found, list | tuple) else ()

    @property
    def kind(self) -> Kind:
        """The row of the catalogue this problem belongs to."""
        return CATALOGUE[self.code]


def code_for_status(status: int) -> str:
    """Return the catalogue code for an answer the HTTP layer made up itself.

    >>> code_for_status(405), code_for_status(418), code_for_status(507)
    ('method_not_allowed', 'bad_request', 'internal')
    """
    return _BY_STATUS.get(status, "bad_request" if status < 500 else "internal")


def below(problem: Problem, pointer: str) -> Problem:
    """Return the problem of a part as one of the whole: `pointer` leads to the part."""
    faults = tuple(replace(fault, pointer=pointer + fault.pointer) for fault in problem.faults)
    return replace(problem, faults=faults)


def document(problem: Problem, instance: str, request_id: str) -> JsonObject:
    """Write the problem as its JSON document."""
    kind = problem.kind
    body: JsonObject = {
        "type": kind.type_uri or "/problems/" + problem.code.replace("_", "-"),
        "title": kind.title,
        "status": kind.status,
        "detail": problem.detail or kind.title,
        "instance": instance,
        "code": problem.code,
        "requestId": request_id,
        "retryable": kind.retryable,
    }
    if problem.faults:
        body["errors"] = [{"pointer": f.pointer, "code": f.code, "message": f.message} for f in problem.faults]
    return body | dict(problem.extensions)


def header_fields(problem: Problem) -> dict[str, str]:
    """Return the headers that go with the document; `Retry-After` in whole seconds, at least one."""
    fields = dict(problem.headers)
    pause_s = whole_pause_s(problem)
    if pause_s is not None:
        fields["Retry-After"] = str(pause_s)
    if problem.code == "unauthenticated":
        fields["WWW-Authenticate"] = 'Bearer realm="headrace"'
    return fields


def whole_pause_s(problem: Problem) -> int | None:
    """Return after how many seconds the caller may try again, at least one; None without a pause."""
    pause_s = problem.kind.retry_after_s if problem.retry_after_s is None else problem.retry_after_s
    return None if pause_s is None else max(1, -int(-pause_s // 1))
