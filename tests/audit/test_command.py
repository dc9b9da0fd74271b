"""What a script learns of `headrace audit`: 0 all is right, 1 something is not."""

import asyncio
import json

from typer.testing import CliRunner, Result

from contracts.store import keys
from headrace.cli import app
from tests.archivist.rig import POOL
from tests.audit.rig import Lived
from tests.audit.test_corruptions import a_checkpoint_is_signed_with_another_key


async def audit(lived: Lived, *words: str) -> Result:
    """Run it beside this store, as a process of its own would."""
    settings = {"HEADRACE_REDIS__URL": lived.store.url, "HEADRACE_ARCHIVE__URL": str(lived.pool.folder)}
    return await asyncio.to_thread(CliRunner().invoke, app, ["audit", *words], env=settings)


async def test_the_exit_code_says_whether_all_is_right(lived: Lived) -> None:
    right = await audit(lived, "verify", "--pool", POOL)
    await lived.client.hset(keys.job(POOL, lived.open[0]), "pr", "high")
    wrong = await audit(lived, "verify", "--pool", POOL, "-o", "json")

    assert (right.exit_code, wrong.exit_code) == (0, 1), right.output
    (told,) = json.loads(wrong.stdout)["pools"]
    assert (told["ok"], told["chainOk"], told["firstBadPosition"]) == (False, True, None)
    (jobs, *_) = told["projections"]
    assert (jobs["name"], jobs["rows"], jobs["differing"]) == ("jobs", 13, 1)
    assert jobs["sample"][0].startswith(lived.open[0])


async def test_a_checkpoint_of_another_key_is_no_good_one(lived: Lived) -> None:
    right = await audit(lived, "checkpoints", "-o", "json")
    _, position = await a_checkpoint_is_signed_with_another_key(lived)
    wrong = await audit(lived, "checkpoints", "-o", "json")
    verified = await audit(lived, "verify", "--pool", POOL)

    assert (right.exit_code, wrong.exit_code, verified.exit_code) == (0, 1, 1)
    assert [row["genuine"] for row in json.loads(right.stdout)["data"]] == [True]
    assert [(row["at"], row["genuine"]) for row in json.loads(wrong.stdout)["data"]][-1] == (position, False)
    assert f"the first bad position is {position}" in verified.stderr
