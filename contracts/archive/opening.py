"""Opens the archive for a process, so that what it reads of logs and jobs goes on below the trim point."""

from functools import partial

from contracts.archive.reading import Archive
from contracts.archive.tail import ArchiveTail
from contracts.artifacts import open_archive_objects
from contracts.settings import Settings
from contracts.store import Store


def open_archive(store: Store, settings: Settings) -> Archive:
    """Return the archive; from now on `store.jobs.history` and `store.tail` continue in it. Raises ConfigError.

    Nothing is asked of it before something is looked for that the log no longer has.
    """
    archive = Archive(store, open_archive_objects(settings))
    store.jobs.below = archive.below
    store.archived_tail = partial(ArchiveTail, archive, store)
    return archive
