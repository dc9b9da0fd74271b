"""Directories that author code has filled are emptied, however deep, and nothing beside them is touched."""

import os
from pathlib import Path

from services.gpu_worker.finish import _tidy
from services.gpu_worker.removal import remove_tree
from tests.gpu_worker.rig import Recorder, model, rig

DEEP = """
import os
def run(model, inputs, job):
    for _ in range(1_500):  # deeper than Python's stack, longer than a path may be, more than descriptors there are
        os.mkdir("deep")
        os.chdir("deep")
    open("file", "w").close()
"""


def test_all_kinds_of_things_are_removed_and_what_links_lead_to_stays(tmp_path: Path) -> None:
    kept, folder = tmp_path / "kept", tmp_path / "folder"
    (kept / "inner").mkdir(parents=True)
    (kept / "file").touch()
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").touch()
    (folder / "a" / "link").symlink_to(kept)
    (folder / "link").symlink_to(kept / "file")
    os.mkfifo(folder / "a" / "pipe")

    remove_tree(folder)
    remove_tree(folder)
    (tmp_path / "folder").symlink_to(kept)
    remove_tree(folder)

    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert sorted(path.name for path in kept.iterdir()) == ["file", "inner"]


async def test_a_tree_deeper_than_any_stack_is_gone_when_its_job_is(tmp_path: Path) -> None:
    """Python's own removal raises RecursionError there: no worker would have started on this host any more."""
    (tmp_path / "deep.py").write_text(DEEP)
    async with rig(tmp_path) as own:
        attempt = own.attempt(model("echo", entry=tmp_path / "deep.py"))
        await own.slot.run(attempt, Recorder())
    assert (attempt.scratch / "deep" / "deep").is_dir()

    assert _tidy(attempt.scratch, None)

    assert list(attempt.scratch.iterdir()) == []
