"""`headrace version`."""

import platform
import sys
from importlib import metadata

from headrace.command import Output
from headrace.output import Format, show_one


def version(output: Output = Format.TABLE) -> None:
    """Print the version."""
    try:
        ours = metadata.version("headrace")
    except metadata.PackageNotFoundError:
        ours = "unknown"
    show_one({"headrace": ours, "python": platform.python_version(), "platform": sys.platform}, output)
