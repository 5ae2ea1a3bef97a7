"""Identifies a process, so that another one on the same machine knows for certain when it has ended.

A host name or an address is not enough: containers on different machines may share them. The kernel's id of
this boot differs from any other machine's, except for machines copied while they ran; so the host name counts
too. Within a boot and a namespace of process ids, an unused id belonged to a process that has ended.
"""

import os
import socket
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")


def process_mark() -> str:
    """`<host>/<boot>/<namespace of process ids>/<process id>`; empty where the system (not Linux) does not
    tell."""
    place = _place()
    return f"{place}/{os.getpid()}" if place else ""


def is_gone(mark: str) -> bool:
    """Whether the process with this mark has certainly ended. False when that cannot be judged from here:
    another machine, an earlier boot, another container."""
    place, _, pid = mark.rpartition("/")
    if not place or place != _place() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False


def _place() -> str:
    try:
        return f"{socket.gethostname()}/{_BOOT.read_text().strip()}/{_PID_NAMESPACE.stat().st_ino}"
    except OSError:
        return ""
