"""A job's progress on a terminal, or as plain lines where there is none (a pipe, a file, CI)."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from headrace.client import JsonObject

_WIDTH = 30
_WAITING = "queued"


class ProgressBar:
    """Feed it the job's events; it keeps one bar with the phase. Lines said meanwhile appear above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._percent, self._phase, self._shown = 0.0, _WAITING, ""
        columns = (TextColumn("{task.description:<16}"), BarColumn(_WIDTH), TaskProgressColumn())
        self._live = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._live.add_task(_WAITING, total=100)

    def __enter__(self) -> Self:
        self._live.start()
        self._draw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, event: JsonObject) -> None:
        """Take in one event of the job."""
        data = event["data"]
        match event["type"]:
            case "job.started":
                self._percent, self._phase = 0.0, "starting"
            case "model.load_started":
                self._phase = "model_loading"
            case "job.progress":
                self._percent, self._phase = float(data["progress"]), str(data.get("phase") or "running")
            case "artifact.upload_started":
                self._phase = "uploading"
            case "job.completed":
                self._percent, self._phase = 100.0, "completed"
            case _:
                return
        self._draw()

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._console.print(line)

    def _draw(self) -> None:
        self._live.update(self._task, completed=self._percent, description=self._phase)
        full = round(_WIDTH * self._percent / 100)
        line = f"[{'#' * full}{'-' * (_WIDTH - full)}] {self._percent:3.0f} % {self._phase}"
        if not self._console.is_terminal and line != self._shown:
            self._console.print(line, markup=False)
        self._shown = line
