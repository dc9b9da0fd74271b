"""`headrace demo`: one job from a prompt to a picture and a signed webhook, on a stack of its own.

Promises a fresh data directory that is gone afterwards, any free port, nothing left running, and exit code 0 only
when the picture was made, the webhook came and its signature was valid. Output is in a fixed order: job, progress,
preview, webhook, picture, timeline.
"""

import asyncio
import os
import shutil
import signal
import tempfile
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from contracts.errors import HeadraceError
from contracts.settings import load_settings
from headrace.client import TERMINAL, Client, JsonObject, Problem, Unreachable
from headrace.exits import Exit, exit_for_status
from headrace.output import answers, note
from headrace.progress_bar import ProgressBar
from headrace.stack.logs import StackLog
from headrace.stack.stack import Stack
from headrace.timeline import timeline_table
from headrace.up import exit_for_fault, read_wishes
from headrace.webhooks.demo_receiver import DemoReceiver

PICTURE = Path("headrace-demo.png")
PREVIEW = Path("headrace-demo-preview")
LIMIT_S = 110.0
_WEBHOOK_LIMIT_S = 30.0
_POLL_S = 0.1
_MOST_EVENTS = 2000
_MODEL = "scenes"
_STEPS = 200  # more than the picture needs: slow enough to watch the preview grow


class DemoFailed(HeadraceError):
    """The demo did not end as promised; the text says where it stopped."""

    code = "demo_failed"


def demo(
    prompt: Annotated[str, typer.Argument(help="What to paint.")] = "a red lighthouse by the sea at sunset",
) -> None:
    """Start a stack, make one picture, receive its webhook, read its history, stop all."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    try:
        asyncio.run(_run(prompt, folder))
    except Problem as fault:
        note(f"error: {fault} ({fault.code})")
        raise typer.Exit(exit_for_status(fault.status)) from None
    except (Unreachable, TimeoutError) as fault:
        note(f"error: {fault or f'not done after {LIMIT_S:.0f} s'}")
        raise typer.Exit(Exit.UNAVAILABLE) from None
    except asyncio.CancelledError:
        note("stopped")
        raise typer.Exit(Exit.FAILED_CHECK) from None
    except HeadraceError as fault:
        note(f"error: {fault}")
        raise typer.Exit(Exit.FAILED_CHECK if isinstance(fault, DemoFailed) else exit_for_fault(fault)) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _run(prompt: str, folder: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "HEADRACE_REDIS__URL"}
    settings = load_settings(environ)
    wishes = replace(read_wishes(settings, port=0, data_dir=folder, pipelines=None), host="127.0.0.1")
    log = StackLog(folder / "logs", echo=None)
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):  # SIGINT cancels by itself
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    async with asyncio.timeout(LIMIT_S), AsyncExitStack() as opened:
        stack = await opened.enter_async_context(Stack(wishes, settings, environ, log))
        await stack.start()
        receiver = await opened.enter_async_context(DemoReceiver(stack.keys.webhook_secret))
        client = await opened.enter_async_context(Client(stack.url, stack.keys.api_key))
        await _show_one_job(client, receiver, prompt, answers())


async def _show_one_job(client: Client, receiver: DemoReceiver, prompt: str, console: Console) -> None:
    body: JsonObject = {"userId": "demo", "prompt": prompt, "model": _MODEL, "webhookUrl": receiver.url}
    body |= {"webhookEvents": ["job.completed", "job.failed"], "input": {"steps": _STEPS}}
    job = (await client.submit(body)).body
    console.print(f"job {job['id']}")
    events = await _follow(client, job["id"], console)
    job = (await client.get(f"/v1/jobs/{job['id']}")).body
    if job["status"] != "completed":
        raise DemoFailed(f"the job ended {job['status']}: {job.get('error')}")
    received = await receiver.wait_for("job.completed", _WEBHOOK_LIMIT_S)
    console.print(f"webhook {received} signature valid")
    _replace(PICTURE, await client.download(str(job["resultUrl"])))
    console.print(f"picture ./{PICTURE}")
    console.print("timeline, read from the event log:")
    console.print(timeline_table(events))


async def _follow(client: Client, job_id: str, console: Console) -> list[JsonObject]:
    """Follow the job's events to the end: a bar that grows, a preview that sharpens. Returns all events."""
    events: list[JsonObject] = []
    with ProgressBar(console) as bar:
        while not (events and f"{events[-1]['type']}".removeprefix("job.") in TERMINAL):
            page = await client.pages(f"/v1/jobs/{job_id}/events", [], _MOST_EVENTS)
            new, events = page["data"][len(events) :], page["data"]
            for event in new:
                bar.show(event)
            # there is one preview file: of several events only the newest still tells its step
            if previews := [event["data"] for event in new if event["type"] == "preview.available"]:
                await _save_preview(client, previews[-1], bar)
            await asyncio.sleep(_POLL_S)
    return events


async def _save_preview(client: Client, preview: JsonObject, bar: ProgressBar) -> None:
    path = PREVIEW.with_suffix("." + str(preview["mime"]).rpartition("/")[2])
    _replace(path, await client.download(str(preview["path"])))
    bar.say(f"preview ./{path} step {preview.get('step')}/{preview.get('totalSteps')}")


def _replace(path: Path, content: bytes) -> None:
    """Write a file in one step: a viewer that reloads it never sees half a picture."""
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(content)
    new.replace(path)
