"""The routes of what only operators do: dead letters, consumers, what is kept."""

from contracts.admin_api import Because, DeadLettersAct, RetentionPatch
from services.ingest.handlers.consumers import ConsumerHandlers
from services.ingest.handlers.dead_letters import DeadLetterHandlers
from services.ingest.handlers.event_import import ImportHandler
from services.ingest.handlers.retention import RetentionHandlers
from services.ingest.routes import PAGED, Parameter, Route
from services.ingest.views import operator_schemas as about

_LETTERS = (
    Parameter("pool", "Only of this pool."),
    Parameter("tenantId", "Only of this tenant."),
    Parameter("model", "`name` or `name@version`."),
    Parameter("code", "Only with this error."),
    Parameter("since", "Failed then or later, RFC 3339."),
    Parameter("until", "Failed before, RFC 3339."),
)
_KEY = (Parameter("Idempotency-Key", "Repeating a request with it finds the same operation.", "header"),)


def dead_letter_routes(letters: DeadLetterHandlers) -> tuple[Route, ...]:
    """Return the operator's routes about dead letters of jobs."""
    dlq, operations = "/admin/v1/dlq", "/admin/v1/dlq/operations"
    asked = ((202, "It will be done, at that rate."), (200, "A dry run: what it would mean."))
    wrong = ("idempotency_mismatch", "missing_idempotency_key", "quota_exceeded", "bad_cursor")
    return (
        Route("GET", dlq, letters.list_letters, "List jobs that failed for good.", "admin",
              reply=about.DeadLetterPage, problems=("bad_cursor", "bad_parameter"), parameters=(*_LETTERS, *PAGED)),
        Route("POST", dlq + "/redrive", letters.redrive, "Take dead letters back to work.", "admin",
              body=DeadLettersAct, replies=asked, reply=about.LetterOperation, problems=wrong, parameters=_KEY),
        Route("POST", dlq + "/discard", letters.discard, "Take dead letters off the list.", "admin",
              body=DeadLettersAct, replies=asked, reply=about.LetterOperation, problems=wrong, parameters=_KEY),
        Route("GET", operations, letters.list_operations, "List redrives and discards.", "admin",
              reply=about.LetterOperationPage, problems=("bad_cursor", "bad_parameter"), parameters=PAGED),
        Route("GET", operations + "/{id}", letters.get_operation, "Show a redrive or discard.", "admin",
              reply=about.LetterOperation, problems=("operation_not_found", "bad_parameter")),
        Route("POST", operations + "/{id}/stop", letters.stop_operation, "Go on with one no further.", "admin",
              body=Because, reply=about.LetterOperation, problems=("operation_not_found", "bad_parameter")),
        Route("GET", dlq + "/{id}", letters.get_letter, "Show a dead letter.", "admin",
              reply=about.DeadLetterDetails, problems=("dead_letter_not_found", "data_erased", "bad_parameter")),
    )  # fmt: skip


def consumer_routes(consumers: ConsumerHandlers) -> tuple[Route, ...]:
    """Return the operator's routes about who reads the logs."""
    consumer, of_pool = "/admin/v1/consumers", Parameter("pool", "Only of this pool.")
    return (
        Route("GET", consumer, consumers.list_consumers, "List who reads the logs, and how far each is.", "admin",
              reply=about.ConsumerPage, problems=("pool_not_found", "bad_cursor", "bad_parameter"),
              parameters=(of_pool, *PAGED)),
        Route("DELETE", consumer + "/{pool}/{group}", consumers.drop, "Drop a group that nobody reads any more.",
              "admin", replies=((204, "It is gone, and holds up the trimming of the log no more."),),
              problems=("consumer_not_found", "consumer_in_use", "bad_parameter"),
              parameters=(
                  Parameter("reason", "Why; kept in the log."),
                  Parameter("force", "true: whether or not somebody reads it.", kind="boolean"),
              )),
    )  # fmt: skip


def import_routes(imports: ImportHandler) -> tuple[Route, ...]:
    """Return the route that takes a log in."""
    return (
        Route("POST", "/admin/v1/events/import", imports.import_events, "Make an export the log of pools without one.",
              "admin", reply=about.Imported, replies=((201, "It is their log; nobody is told of it."),),
              takes_file=True,
              problems=("bad_export", "bad_parameter", "log_not_empty", "payload_too_large", "unsupported_media_type"),
              parameters=(Parameter("reason", "Why; kept in the log of the configuration."),)),
    )  # fmt: skip


def retention_routes(retention: RetentionHandlers) -> tuple[Route, ...]:
    """Return the operator's routes about how long things are kept."""
    path = "/admin/v1/retention"
    scope = (Parameter("pool", "Of this pool."), Parameter("tenantId", "Of this tenant; comes before its pool's."))
    wrong = ("pool_not_found", "tenant_not_found", "bad_parameter")
    return (
        Route("GET", path, retention.get_retention, "Show how long what has ended is kept.", "admin",
              reply=about.Retention, problems=wrong, parameters=scope),
        Route("PATCH", path, retention.patch_retention, "Change how long what has ended is kept.", "admin",
              body=RetentionPatch, reply=about.Retention, problems=(*wrong, "version_mismatch"), parameters=scope),
    )  # fmt: skip
