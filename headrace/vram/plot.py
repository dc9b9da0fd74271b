"""The picture of an audit: measured peaks and the fitted line against the product of the parameters, as a PNG.

Drawn with Pillow alone, which the extras `cpu` and `gpu` have.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contracts.profile_fit import product_of
from contracts.profiles import Profile

WIDTH, HEIGHT = 800, 500
LEFT, RIGHT, TOP, BOTTOM = 90, 30, 50, 60
MIB = 1 << 20
TICKS = 5
_INK, _GREY, _LINE, _DOT, _FAULT = "#222222", "#d8d8d8", "#2f6fb5", "#d1495b", "#8a8a8a"


class NoPlot(Exception):
    """The picture cannot be drawn here; the text says what is missing."""


def draw(model: str, profile: Profile, path: Path) -> None:
    """Write the picture. Raises NoPlot."""
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        raise NoPlot("no plot: Pillow is not installed; pip install 'headrace[cpu]' has it") from None
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    _Chart(ImageDraw.Draw(image), profile).draw(model)
    image.save(path, "PNG")


class _Chart:
    def __init__(self, canvas: Any, profile: Profile) -> None:
        self._canvas, self._profile = canvas, profile
        fit = profile.fit
        self._points = [(product_of(fit.inputs, point.inputs), point.peak_bytes) for point in profile.points]
        peaks = [peak for _, peak in self._points if peak is not None]
        self._most_x = max(x for x, _ in self._points) * 1.05 or 1.0
        self._most_y = max(1, *peaks, *(y for _, y in self._line())) * 1.1

    def draw(self, model: str) -> None:
        """Draw axes, line and points."""
        fit, machine = self._profile.fit, self._profile.machine
        self._axes(" x ".join(fit.inputs) or "no parameters")
        line = [self._at(x, y) for x, y in self._line()]
        if len(line) > 1:
            self._canvas.line(line, fill=_LINE, width=2)
        for x, peak in self._points:
            column, row = self._at(x, self._most_y / 1.1 if peak is None else peak)
            box = (column - 4, row - 4, column + 4, row + 4)
            if peak is None:
                self._canvas.line((box[0], box[1], box[2], box[3]), fill=_FAULT, width=2)
                self._canvas.line((box[0], box[3], box[2], box[1]), fill=_FAULT, width=2)
            else:
                self._canvas.ellipse(box, fill=_DOT)
        title = f"{model} on {machine.device}: peak memory, {fit.kind} fit, worst error {fit.worst_error:.1%}"
        self._canvas.text((LEFT, 18), title, fill=_INK)
        if any(peak is None for _, peak in self._points):
            self._canvas.text((LEFT + 10, TOP + 6), "x: out of memory", fill=_FAULT)

    def _axes(self, label: str) -> None:
        for tick in range(TICKS + 1):
            x, y = self._most_x * tick / TICKS, self._most_y * tick / TICKS
            column, row = self._at(x, y)
            self._canvas.line((LEFT, row, WIDTH - RIGHT, row), fill=_GREY)
            self._canvas.text((8, row - 6), f"{y / MIB:,.0f} MiB", fill=_INK)
            self._canvas.text((column - 12, HEIGHT - BOTTOM + 8), f"{x:,.4g}", fill=_INK)
        corner = self._at(0, 0)
        self._canvas.line((corner, self._at(self._most_x, 0)), fill=_INK)
        self._canvas.line((corner, self._at(0, self._most_y)), fill=_INK)
        self._canvas.text(((LEFT + WIDTH) // 2 - 40, HEIGHT - 24), label, fill=_INK)

    def _line(self) -> Iterator[tuple[float, float]]:
        fit = self._profile.fit
        steps = 0 if fit.kind == "table" else 100
        for step in range(steps + 1 if steps else 0):
            x = self._most_x / 1.05 * step / steps
            yield x, fit.peak_bytes(x)

    def _at(self, x: float, y: float) -> tuple[float, float]:
        across, up = x / self._most_x, y / self._most_y
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)
