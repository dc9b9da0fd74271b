"""Profiles that are written while a process runs."""

from pathlib import Path

from contracts.models import load, profile_file
from contracts.profile_folder import Found, ProfileFolder
from contracts.profiles import Machine, ModelProfiles, Point, make_profile

TOML = '[models.a]\nentry = "a.py"\ninputs = "a.json"\n'


def profiles(peak_bytes: int) -> ModelProfiles:
    profile = make_profile(Machine(kind="cpu"), (), [Point(peak_bytes=peak_bytes)], 1 << 30)
    return ModelProfiles(model="a@1", profiles=(profile,))


def test_a_profile_that_is_written_replaced_or_removed_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    (tmp_path / "a.json").write_text('{"type": "object"}')
    (tmp_path / "pipelines.toml").write_text(TOML)
    models = load(tmp_path / "pipelines.toml")
    folder, path = ProfileFolder(models), tmp_path / profile_file("a@1")
    path.parent.mkdir()

    for now in (profiles(1), profiles(22), None):
        path.write_text(now.to_json()) if now else path.unlink()
        found = folder.look()
        assert found == Found({"a@1": now}, ())
        folder.take(found)
        for name in ("a", "a@1"):
            spec = models.find(name)
            assert spec is not None
            assert spec.profile == now
        assert folder.look() == Found({}, ())


def test_what_is_no_profile_is_told_once_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    (tmp_path / "a.json").write_text('{"type": "object"}')
    (tmp_path / "pipelines.toml").write_text(TOML)
    path = tmp_path / profile_file("a@1")
    path.parent.mkdir()
    path.write_text(profiles(1).to_json())
    folder = ProfileFolder(load(tmp_path / "pipelines.toml"))
    assert folder.look() == Found({}, ())

    path.write_text("{")
    changed, (fault,) = folder.look()
    assert changed == {}
    assert "is no profile" in fault
    assert folder.look() == Found({}, ())
