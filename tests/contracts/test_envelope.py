"""The public event record: what a consumer of records reads is what a reader of the log reads."""

import json
from pathlib import Path

import orjson
import pytest

from contracts.envelope import Origin, entry_of, event_view
from contracts.errors import Corrupt
from contracts.job import JobState
from contracts.positions import Position
from contracts.wire import Entry, decode

FILES = sorted((Path(__file__).parents[2] / "contracts" / "golden" / "events").glob("*.json"))
ORIGIN = Origin("aa", 3, "https://gen.example")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
@pytest.mark.parametrize("hooked", [True, False])
def test_a_record_holds_all_of_its_entry_but_the_way_back(file: Path, hooked: bool) -> None:
    entry = decode("1764457200123-7", json.loads(file.read_text()))._replace(hooked=hooked)
    record = orjson.dumps(event_view(entry, JobState(entry.subject), JobState(entry.subject), ORIGIN))

    position, read = entry_of(orjson.loads(record), hooked=hooked)

    assert position == Position("aa", 3, entry.position)
    told = {name: value for name, value in entry.raw_data().items() if name != "anchor"}
    assert read.raw_data() == told
    assert entry.type == "job.assigned" or (told == entry.raw_data() and read.event() == entry.event())
    assert read._replace(data=entry.data, previous=entry.previous) == entry


def test_a_record_names_no_other_tenant() -> None:
    """Field case 10: the fair choice that a job was offered beside is mostly somebody else's."""
    entry = Entry("1-0", "job.assigned", "job_x", b'{"anchor":"t_other","why":"warm"}')

    view = event_view(entry, JobState("job_x"), JobState("job_x"), ORIGIN)

    assert view["data"] == {"why": "warm"}


def test_a_link_is_shown_and_is_not_part_of_the_entry() -> None:
    data = b'{"artifacts":[{"path":"/v1/a"},{"url":"kept"}],"preview":{"path":"/v1/b"}}'
    entry = Entry("1-0", "job.milestone_reached", "job_x", data)

    view = event_view(entry, JobState("job_x"), JobState("job_x"), ORIGIN)

    assert view["data"]["artifacts"][0]["url"] == "https://gen.example/v1/a"
    assert view["data"]["preview"]["url"] == "https://gen.example/v1/b"
    assert entry_of(view, hooked=False)[1].data == data


GOOD = event_view(Entry("1-0", "job.queued", "job_x", b"{}"), JobState("job_x"), JobState("job_x"), ORIGIN)


@pytest.mark.parametrize("change", [
    {"position": "1-0"}, {"position": None}, {"type": 5}, {"subject": None}, {"sequence": "many"}, {"fence": None},
    {"version": []}, {"data": [1]}, {"data": None}, {"type": "job.queued/9"}, {"type": "\n"}, {"version": 0},
    {"version": 1.5}, {"sequence": True}, {"sequence": 2**63}, {"fence": -1}, {"fence": "1"},
])  # fmt: skip
def test_what_is_no_record_is_refused_as_corrupt(change: dict[str, object]) -> None:
    with pytest.raises(Corrupt):
        entry_of(GOOD | change, hooked=True)
    with pytest.raises(Corrupt):
        entry_of({name: value for name, value in GOOD.items() if name not in change}, hooked=True)
