"""Each event version has one golden file, and it is never written by a test: a wire change cannot pass unseen."""

import json
from pathlib import Path

import pytest

from contracts.events import CATALOGUE
from contracts.wire import UPCASTERS, decode

GOLDEN = Path(__file__).parents[2] / "contracts" / "golden" / "events"
FILES = sorted(GOLDEN.glob("*.json"))


def test_every_version_of_every_event_has_a_golden_file() -> None:
    names = {file.stem for file in FILES}
    for event_type, model in CATALOGUE.items():
        for version in range(1, model.VERSION + 1):
            assert f"{event_type}.v{version}" in names, f"add contracts/golden/events/{event_type}.v{version}.json"
            assert version == model.VERSION or (event_type, version) in UPCASTERS


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_golden_event_decodes_and_the_current_version_is_written_byte_for_byte(file: Path) -> None:
    fields = json.loads(file.read_text())
    event_type, _, version = file.stem.rpartition(".v")

    entry = decode("1764457200123-0", fields)
    event = entry.event()

    assert (entry.type, entry.version) == (event_type, int(version))
    assert isinstance(event, CATALOGUE[event_type])
    if int(version) == event.VERSION:
        assert event.to_json() == fields["d"]


def test_an_unknown_type_and_an_unknown_field_survive_reading() -> None:
    unknown = decode("1-0", {"t": "job.teleported/3", "j": "job_x", "d": '{"to":"mars"}'})
    newer = decode("1-0", {"t": "job.scheduled", "j": "job_x", "d": '{"runAtMs":5,"later":true}'})

    assert (unknown.event(), unknown.type, unknown.version) == (None, "job.teleported", 3)
    assert unknown.raw_data() == {"to": "mars"}
    assert newer.event() is not None
    assert newer.raw_data()["later"] is True
