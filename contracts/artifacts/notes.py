"""Small facts that are kept as JSON in a store of objects: what is known of a file beside it."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from contracts.artifacts.objects import Objects

T = TypeVar("T", bound=BaseModel)


def write_note(objects: Objects, key: str, note: BaseModel, durable: bool = True) -> None:
    """Write it down; what is None is left out. Raises StoreAway."""
    text = note.model_dump_json(by_alias=True, exclude_none=True).encode()
    objects.put_file(key, text, "application/json", durable)


def read_note(objects: Objects, key: str, kind: type[T]) -> T | None:
    """Return what is written there; None when there is nothing, or nothing that can be read. Raises StoreAway."""
    found = objects.get(key)
    if found is None:
        return None
    with found:
        text = b"".join(iter(found.read, b""))
    try:
        return kind.model_validate_json(text)
    except ValidationError:
        return None
