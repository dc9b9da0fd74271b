"""How far two files are from each other, 0 to 1: `python picture_distance.py FIRST SECOND`.

A process of its own, since it decodes what author code has written: what goes wrong in here costs nobody anything.
Standard library, and Pillow where it is installed; else, or where the files are no pictures, bytes are compared.
"""

import resource
import sys

MOST_BYTES = 2 << 30  # of memory
MOST_CPU_S = 30


def main(first: str, second: str) -> float:
    """Return the mean difference of the pixels, or else the share of bytes that differ."""
    found = _of_pictures(first, second)
    return _of_bytes(first, second) if found is None else found


def _of_pictures(first: str, second: str) -> float | None:
    try:
        from PIL import Image, ImageChops, ImageStat
    except ImportError:
        return None
    try:
        with Image.open(first) as one, Image.open(second) as other:
            if one.size != other.size:
                return 1.0
            means = ImageStat.Stat(ImageChops.difference(one.convert("RGBA"), other.convert("RGBA"))).mean
    except (OSError, ValueError, Image.DecompressionBombError):
        return None
    # whatever differs is never told as 0, which means that nothing does
    return sum(means) / len(means) / 255


def _of_bytes(first: str, second: str) -> float:
    differing = length = 0
    with open(first, "rb") as one, open(second, "rb") as other:
        while True:
            here, there = one.read(1 << 20), other.read(1 << 20)
            if not here and not there:
                return differing / length if length else 0.0
            size = min(len(here), len(there))
            mixed = int.from_bytes(here[:size], "big") ^ int.from_bytes(there[:size], "big")
            differing += max(len(here), len(there)) - mixed.to_bytes(size, "big").count(0)
            length += max(len(here), len(there))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
    print(main(sys.argv[1], sys.argv[2]))
