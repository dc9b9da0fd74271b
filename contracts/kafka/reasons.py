"""What went wrong with Kafka, in words for people."""

from aiokafka.errors import KafkaError, UnknownError


def reason_of(error: Exception) -> str:
    """Return what is wrong, for people; never what was sent."""
    if isinstance(error, UnknownError):
        return f"{error}; a broker without idempotent producers needs HEADRACE_KAFKA__IDEMPOTENT=false"
    if isinstance(error, KafkaError | OSError):
        return str(error) or type(error).__name__
    return f"{type(error).__name__} (user, password and mechanism may be wrong)"
