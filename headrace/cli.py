"""The `headrace` command: one noun per module, one verb per function. Composition only."""

import platform
import sys
from importlib.metadata import PackageNotFoundError, version

import typer

from headrace import jobs, keys, models, policy, pools, tenants, workers
from headrace.command import Output
from headrace.demo import demo
from headrace.doctor import doctor
from headrace.output import Format, show_one
from headrace.up import up
from headrace.vram.command import app as vram_app

app = typer.Typer(
    name="headrace",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A durable, fair queue in front of your GPUs.",
)
app.add_typer(jobs.app, name="jobs")
app.add_typer(tenants.app, name="tenant")
app.add_typer(keys.app, name="key")
app.add_typer(pools.app, name="pool")
app.add_typer(workers.app, name="worker")
app.add_typer(models.app, name="model")
app.add_typer(policy.app, name="policy")
app.add_typer(vram_app, name="vram")
app.command()(up)
app.command()(demo)
app.command()(doctor)


@app.command(name="version")
def version_(output: Output = Format.TABLE) -> None:
    """Print the version."""
    try:
        ours = version("headrace")
    except PackageNotFoundError:
        ours = "unknown"
    show_one({"headrace": ours, "python": platform.python_version(), "platform": sys.platform}, output)


def main() -> None:
    """Entry point of the `headrace` program."""
    app()


if __name__ == "__main__":
    main()
