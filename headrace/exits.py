"""Exit codes of the command line, and which one an HTTP answer stands for. Pure."""

from enum import IntEnum


class Exit(IntEnum):
    """What a script that calls `headrace` can rely on."""

    OK = 0
    FAILED_CHECK = 1
    USAGE = 2
    NOT_FOUND = 3
    AUTH = 4
    CONFLICT = 5
    RATE_LIMITED = 6
    UNAVAILABLE = 7


_BY_STATUS = {
    401: Exit.AUTH,
    403: Exit.AUTH,
    404: Exit.NOT_FOUND,
    409: Exit.CONFLICT,
    410: Exit.NOT_FOUND,
    429: Exit.RATE_LIMITED,
}


def exit_for_status(status: int) -> Exit:
    """The exit code for an HTTP status that is no success.

    >>> exit_for_status(422), exit_for_status(410), exit_for_status(503)
    (<Exit.USAGE: 2>, <Exit.NOT_FOUND: 3>, <Exit.UNAVAILABLE: 7>)
    """
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if 400 <= status < 500:
        return Exit.USAGE
    return Exit.UNAVAILABLE
