"""How a process of ours starts another one of our modules."""

import sys


def own_python(module: str, *words: str) -> list[str]:
    """Return the command. Where we do not import from the current folder (`python -P`), it must not either.

    >>> own_python("headrace", "version")[-3:]
    ['-m', 'headrace', 'version']
    """
    return [sys.executable, *(["-P"] if sys.flags.safe_path else []), "-m", module, *words]
