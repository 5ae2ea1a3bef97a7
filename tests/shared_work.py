"""What the processes that run tests share: which tests are left, and which one each of them is in."""

import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_TLS_AND_SASL = "clusters with TLS and SASL"
_GUARDED = "clusters with rights of their own"
TOGETHER = {
    "tests/e2e/one_run/": "one run",
    "tests/e2e/test_secured_flow.py": _TLS_AND_SASL,
    "tests/integration/kafka/test_kafka_security.py": _TLS_AND_SASL,
    "tests/contract/cluster/test_real_cluster.py": _TLS_AND_SASL,
    "tests/integration/configsync/test_configsync_access.py": _GUARDED,
    "tests/integration/configsync/test_configsync_acls.py": _GUARDED,
    "tests/integration/checkpoint/test_checkpoint_operations.py": _GUARDED,
    "tests/integration/cli/test_preflight_command.py": _GUARDED,
    "tests/integration/source/test_read_only_source.py": _GUARDED,
}
"""Files, and directories of them, that share what takes seconds to start."""
_MOST_UNIT_TESTS = 40
_GROUP = struct.Struct("<H")
_TEST = struct.Struct("<i")
_NO_TEST = -1


def groups_of(nodeids: Sequence[str]) -> list[list[int]]:
    """Which tests run in the same process, one after the other, by their places; ordered by their first ones.

    The tests of a file; unit tests start nothing, so many of them are split.
    """
    groups: dict[str, list[int]] = {}
    for index, nodeid in enumerate(nodeids):
        file, _, _ = nodeid.partition("::")
        name = next((shared for begin, shared in TOGETHER.items() if file.startswith(begin)), file)
        groups.setdefault(name, []).append(index)
    parts: list[list[int]] = []
    for name, tests in groups.items():
        most = _MOST_UNIT_TESTS if name.startswith("tests/unit/") else len(tests)
        parts += [tests[begin : begin + most] for begin in range(0, len(tests), most)]
    return parts


class SharedWork:
    """Made before the processes are forked."""

    def __init__(self, nodeids: Sequence[str], slots: int) -> None:
        self.groups = groups_of(nodeids)
        self._queue, write = os.pipe()
        os.set_blocking(write, False)
        os.write(write, b"".join(_GROUP.pack(number) for number in range(len(self.groups))))
        os.close(write)
        # One number for each process, and one that says whether to stop.
        self._marks = mmap.mmap(-1, (slots + 1) * _TEST.size)
        self._stop_at = slots * _TEST.size
        for slot in range(slots):
            self._mark(slot, _NO_TEST)

    def take(self) -> int | None:
        """The number of a group that no other process gets; None = there are no more."""
        number = os.read(self._queue, _GROUP.size)
        return int(_GROUP.unpack(number)[0]) if number else None

    def stop(self) -> None:
        """No process begins another test."""
        _TEST.pack_into(self._marks, self._stop_at, 1)

    @property
    def is_stopped(self) -> bool:
        return bool(_TEST.unpack_from(self._marks, self._stop_at)[0])

    def running(self, slot: int) -> int | None:
        """The test that this process is in, or died in."""
        index = int(_TEST.unpack_from(self._marks, slot * _TEST.size)[0])
        return None if index == _NO_TEST else index

    @contextmanager
    def marked_as_running(self, slot: int, index: int) -> Iterator[None]:
        self._mark(slot, index)
        yield
        self._mark(slot, _NO_TEST)

    def _mark(self, slot: int, index: int) -> None:
        _TEST.pack_into(self._marks, slot * _TEST.size, index)
