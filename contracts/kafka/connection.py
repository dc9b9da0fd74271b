"""How a cluster is reached: servers, TLS, and who we say we are.

Promises: nothing that prints a `Cluster` prints its password; a file that cannot be read is a fault of the
configuration, told before anything is connected.
"""

import ssl
from dataclasses import dataclass, field
from typing import Any

from contracts.errors import ConfigError
from contracts.settings import KafkaSettings


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster. Without a `mechanism` nobody is asked who we are."""

    servers: str
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)

    def options(self) -> dict[str, Any]:
        """Return what every client of aiokafka is given."""
        way = "PLAINTEXT" if self.tls is None else "SSL"
        options: dict[str, Any] = {
            "bootstrap_servers": self.servers,
            "security_protocol": f"SASL_{way}" if self.mechanism else way,
            "ssl_context": self.tls,
        }
        if not self.mechanism:
            return options
        return options | {
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic of a cluster."""

    cluster: Cluster
    name: str


def topic_at(place: tuple[str, str] | None, settings: KafkaSettings) -> Topic | None:
    """Return the topic at `place`, which is servers and a name. Raises ConfigError."""
    if place is None:
        return None
    password = settings.password.get_secret_value() if settings.password is not None else ""
    tls = _tls(settings) if settings.tls else None
    return Topic(Cluster(place[0], tls, settings.sasl, settings.user, password), place[1])


def _tls(settings: KafkaSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file or None)
        if settings.client_cert_file:
            context.load_cert_chain(settings.client_cert_file, settings.client_key_file or None)
    except (OSError, ssl.SSLError) as error:
        why = error.strerror or type(error).__name__
        raise ConfigError(
            [f"HEADRACE_KAFKA__CA_FILE, __CLIENT_CERT_FILE, __CLIENT_KEY_FILE: cannot be used ({why}); name PEM files"]
        ) from error
    return context
