"""JSON log lines on stderr: an event in the past tense, then ids, then numbers with units. No prompts, no secrets."""

import contextlib
import logging
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def _absent(package: str) -> Iterator[None]:
    """Let what is imported in here believe that the package is not installed."""
    known = sys.modules.get(package)
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[package]
        if known is not None:
            sys.modules[package] = known


# structlog loads rich where it can, to draw tracebacks for people: a tenth of what the start of a service takes.
with _absent("rich"):
    import structlog

Logger = structlog.typing.FilteringBoundLogger


def configure_logging(service: str, level: str) -> Logger:
    """Set up the process's log and return its logger, bound to the name of the service."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logger: Logger = structlog.get_logger(service=service)
    return logger


def take_over_libraries(logger: Logger) -> None:
    """Write the warnings of libraries as lines of this log, too; they would come as bare text otherwise."""
    logging.getLogger().addHandler(_Lines(logger))


class _Lines(logging.Handler):
    def __init__(self, logger: Logger) -> None:
        super().__init__(logging.WARNING)
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        self._logger.log(record.levelno, "library_warned", library=record.name, text=record.getMessage())
