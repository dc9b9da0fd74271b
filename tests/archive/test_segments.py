"""A segment gives back exactly what went in, and whatever is changed in it is found and placed."""

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from contracts.archive import START_DIGEST, Record, SegmentName, digest_after, first_bad, link, seal, unpack
from contracts.archive.lines import split
from contracts.archive.names import in_order, parse_key
from contracts.archive.segments import lines_of
from contracts.errors import Corrupt
from contracts.store.log import Poison

FIELD = st.one_of(st.binary(max_size=20), st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace")))
FIELDS = st.lists(FIELD, min_size=1, max_size=6).map(tuple)


@st.composite
def runs(draw: st.DrawFn) -> list[Record]:
    steps = draw(st.lists(st.tuples(st.integers(0, 3), FIELDS), min_size=1, max_size=12))
    ms, found = 1_764_500_000_000, []
    for number, (step, fields) in enumerate(steps):
        ms += step
        found.append(Record(f"{ms}-{number}", fields))
    return found


def a_run(count: int = 20) -> list[Record]:
    return [
        Record(f"{5 + n}-0", (b"t", b"job.created", b"j", b"job_%d" % n, b"d", b'{"n":%d}' % n)) for n in range(count)
    ]


@pytest.mark.parametrize("gone", [b"t", b"j", b"d"])
def test_a_field_that_is_missing_is_told_alike_of_log_and_archive(gone: bytes) -> None:
    """What reads texts and what reads bytes say the same of an entry that cannot be read."""
    fields = {b"t": b"job.created", b"j": b"job_1", b"d": b"{}", b"n": "\N{ARABIC-INDIC DIGIT THREE}".encode()}
    whole = Record("7-0", tuple(text for pair in fields.items() for text in pair))
    part = Record("8-0", tuple(text for pair in fields.items() if pair[0] != gone for text in pair))
    _, packed = seal("default", 1, START_DIGEST, [whole, part])

    entries = split(lines_of(packed, "here"), "here").entries()

    assert entries == [whole.entry(), part.entry()]
    assert all(isinstance(entry, Poison) for entry in entries)


@given(runs(), st.binary(min_size=32, max_size=32))
def test_unpacking_gives_the_exact_bytes_of_every_entry(records: list[Record], before: bytes) -> None:
    segment, packed = seal("default", 3, before, records)

    again = unpack(packed, "here")
    assert list(again.records) == records
    assert (again.pool, again.epoch, again.before, again.after) == ("default", 3, before, segment.after)
    assert again.after == digest_after(before, records)
    assert first_bad(lines_of(packed, "here"), before) is None
    lines = split(lines_of(packed, "here"), "here")
    assert all(lines.find(record.position) == record for record in records)
    assert lines.entries() == [record.entry() for record in records]
    place = len(records) // 2
    assert lines.entries(lines.behind(records[place].position)) == lines.entries(place + 1)


@given(runs(), runs())
def test_two_different_runs_never_have_one_digest(one: list[Record], other: list[Record]) -> None:
    assert (digest_after(START_DIGEST, one) == digest_after(START_DIGEST, other)) == (one == other)


def test_bytes_cannot_move_between_neighbours_without_changing_the_digest() -> None:
    first, second = Record("1-0", (b"ab", b"c")), Record("1-0", (b"a", b"bc"))

    assert link(START_DIGEST, first) != link(START_DIGEST, second)


CHANGES = {
    "an edited value": lambda lines: [*lines[:8], lines[8].replace(b"job_7", b"job_8"), *lines[9:]],
    "a removed entry": lambda lines: [*lines[:8], *lines[9:]],
    "two entries in another order": lambda lines: [*lines[:8], lines[9], lines[8], *lines[10:]],
    "an entry that is there twice": lambda lines: [*lines[:9], lines[8], *lines[9:]],
    "a later position": lambda lines: [*lines[:8], lines[8].replace(b'"12-0"', b'"12-1"'), *lines[9:]],
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_first_bad_position_is_named(change: str) -> None:
    _, packed = seal("default", 1, START_DIGEST, a_run())
    head, *inner, foot = lines_of(packed, "here").rstrip(b"\n").split(b"\n")
    lines = CHANGES[change]([head, *inner])
    foot = foot.replace(b'"count":20', b'"count":%d' % (len(lines) - 1))

    bad = first_bad(b"\n".join([*lines, foot]) + b"\n", START_DIGEST)

    place = {"an entry that is there twice": "12-0", "a removed entry": "13-0", "a later position": "12-1"}
    assert bad == place.get(change, "12-0" if change == "an edited value" else "13-0")


def test_a_segment_that_does_not_follow_the_one_before_is_bad_from_its_first_entry() -> None:
    _, packed = seal("default", 1, START_DIGEST, a_run())

    assert first_bad(lines_of(packed, "here"), b"\1" * 32) == "5-0"


@pytest.mark.parametrize("cut", [0, 1, 10, 200])
def test_a_torn_segment_is_corrupt_and_nothing_else(cut: int) -> None:
    _, packed = seal("default", 1, START_DIGEST, a_run())
    whole = lines_of(packed, "here")

    with pytest.raises(Corrupt):
        unpack(packed[: len(packed) - 1 - cut], "here")
    with pytest.raises(Corrupt):
        unpack(zstandard.compress(whole[: len(whole) - 1 - cut]), "here")


def test_a_name_reads_back_and_nothing_else_is_taken_for_one() -> None:
    name = SegmentName(2, "17-3", "400-18446744073709551615")

    assert parse_key(name.key("default")) == ("default", name)
    assert parse_key(name.key("_sys")) == ("_sys", name)
    for key in (name.bodies_key("default"), name.aside_key("default"), "default/2/x.ndjson.zst", "host.json"):
        assert parse_key(key) is None
    assert in_order([SegmentName(1, "10-0", "11-0"), SegmentName(1, "9-0", "9-9")])[0].first == "9-0"
