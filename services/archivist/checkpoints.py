"""When the archive is signed. Pure."""

from contracts.store.archive import Manifest


def is_due(manifest: Manifest, now_ms: int, every_ms: int) -> bool:
    """Whether it is time to sign what has been archived since the last checkpoint.

    A checkpoint is an entry, too: that alone does not call for the next, or an idle pool would never come to rest.
    """
    known = manifest.checkpointed
    return manifest.count > (known + 1 if known else 0) and now_ms - manifest.checkpoint_ms >= every_ms
