"""Baseline of a slot's child: reads frames from descriptor argv[1], says when it began and ended. No library."""

import json
import socket
import struct
import sys
import time

HEADER = struct.Struct("!I")


def main() -> None:
    """Serve frames `{"ms": N}` until the other end closes."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    file = channel.makefile("rb")
    while head := file.read(HEADER.size):
        body = file.read(HEADER.unpack(head)[0])
        began_ns = time.monotonic_ns()
        if ms := json.loads(body)["ms"]:
            time.sleep(ms / 1000)
        answer = json.dumps({"beganNs": began_ns, "endedNs": time.monotonic_ns()}).encode()
        channel.sendall(HEADER.pack(len(answer)) + answer)


if __name__ == "__main__":
    main()
