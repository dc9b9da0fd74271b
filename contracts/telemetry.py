"""JSON log lines on stderr: an event in the past tense, then ids, then numbers with units. No prompts, no secrets."""

import logging
import sys

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
