"""Which promises the file system under a data directory breaks.

Network file systems break the locks, memory file systems break durability. Promises a warning where the
system can tell; says nothing where it cannot (an unreadable mount table is no fault of the user).
"""

import re
import subprocess
import sys
from pathlib import Path

_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "afpfs", "webdav", "afs", "ceph", "glusterfs", "lustre"}
    | {"9p", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone"}
)
_MEMORY = frozenset({"tmpfs", "ramfs"})
_MAC_MOUNT = re.compile(r"^.+? on (?P<point>/.*) \((?P<kind>\w+)")


def warnings_for(directory: Path) -> tuple[str, ...]:
    """Sentences about the file system that holds `directory`; empty when all is well or nothing is known."""
    kind = filesystem_kind(directory)
    if kind in _NETWORK:
        return (f"{directory} lies on a network file system ({kind}): its locks are unreliable, use a local disk",)
    if kind in _MEMORY:
        return (f"{directory} lies in memory ({kind}): all jobs are gone after a reboot",)
    return ()


def filesystem_kind(directory: Path, mount_table: str | None = None) -> str:
    """The type of the mount that holds `directory`, as the system names it; empty when unknown."""
    text = _read_mounts() if mount_table is None else mount_table
    best_length, best_kind = -1, ""
    for point, kind in _parse(text):
        # later mounts hide earlier ones on the same point
        if len(point.parts) >= best_length and (directory == point or point in directory.parents):
            best_length, best_kind = len(point.parts), kind
    return best_kind


def _parse(text: str) -> list[tuple[Path, str]]:
    mounts = []
    for line in text.splitlines():
        if mac := _MAC_MOUNT.match(line):
            mounts.append((Path(mac["point"]), mac["kind"]))
            continue
        left, dash, right = line.partition(" - ")
        fields = left.split()
        if dash and len(fields) > 4 and right:
            point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4])
            mounts.append((Path(point), right.split()[0]))
    return mounts


def _read_mounts() -> str:
    try:
        if sys.platform == "darwin":
            return subprocess.run(["/sbin/mount"], capture_output=True, text=True, timeout=5, check=False).stdout
        return Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except (OSError, subprocess.SubprocessError):
        return ""
