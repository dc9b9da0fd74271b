"""Stored files: what lies where, under which id, with which record. The only code that speaks to an object store.

`objects` is what a store must be able to do (five methods), `local` and `s3` are the two there are, `shelf` is what
both hold: a file under an id of ours and a record beside it; `notes` are such
records. Blocking throughout: call it in a thread.
"""

from contracts.artifacts.notes import read_note, write_note
from contracts.artifacts.objects import Content, Objects, StoreAway, Stored
from contracts.artifacts.opening import open_archive_objects, open_objects
from contracts.artifacts.records import INCOMING, ArtifactRecord, Upload, ending_of, mime_of, record_key
from contracts.artifacts.shelf import Shelf

__all__ = [
    "INCOMING", "ArtifactRecord", "Content", "Objects", "Shelf", "StoreAway", "Stored", "Upload", "ending_of",
    "mime_of", "open_archive_objects", "open_objects", "read_note", "record_key", "write_note",
]  # fmt: skip
