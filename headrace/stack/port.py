"""The stack's port: chosen once, kept while the stack lives.

Promises that the number stays ours between two lives of ingest where the system allows it (Linux: a bound
socket that does not listen keeps others from being given the number). Does not listen itself.
"""

import errno
import socket
import sys
from dataclasses import dataclass

from contracts.errors import HeadraceError


class PortTaken(HeadraceError):
    """Somebody else listens on the port."""

    code = "port_taken"


@dataclass(slots=True)
class Port:
    """A port number, and the socket that reserves it."""

    number: int
    _reservation: socket.socket | None

    def close(self) -> None:
        """Give the number back."""
        if self._reservation:
            self._reservation.close()


def reserve(host: str, number: int) -> Port:
    """Reserve a port; 0 takes any free one.

    Raises:
        PortTaken: somebody listens there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    # ingest sets it, too: two sockets with it may share a port as long as at most one listens
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, number))
    except OSError as fault:
        bound.close()
        if fault.errno != errno.EADDRINUSE:
            raise PortTaken(f"port {number} of {host} cannot be used: {fault.strerror}") from fault
        raise PortTaken(
            f"port {number} of {host} is taken: stop what listens there, or choose another with --port (0 takes any)"
        ) from fault
    chosen = int(bound.getsockname()[1])
    if sys.platform.startswith("linux"):
        return Port(chosen, bound)
    bound.close()
    return Port(chosen, None)
