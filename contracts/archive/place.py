"""Which archive this is: an id that lies in it, so that a log's archivists all write into the same one."""

from pydantic import BaseModel

from contracts.artifacts import Objects, read_note, write_note

KEY = "archive.json"


class Place(BaseModel):
    """What lies at the top of an archive."""

    id: str
    made_by: str  # the host, for people


def place_of(objects: Objects, candidate: str, host: str) -> Place:
    """Return what marks this archive, marking one that is new with `candidate`. Blocking. Raises StoreAway."""
    found = read_note(objects, KEY, Place)
    if found is None:
        write_note(objects, KEY, Place(id=candidate, made_by=host))
        found = read_note(objects, KEY, Place)
    assert found is not None
    return found
