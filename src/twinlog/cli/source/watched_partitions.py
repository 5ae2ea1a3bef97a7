"""The state that a watch of partitions has received. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from twinlog.api.source.v1 import source_service_pb2 as pb2

Key = tuple[str, str, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The news of a message."""

    changed: Sequence[pb2.PartitionStatus]
    removed: Sequence[pb2.PartitionStatus] = ()


@dataclass(slots=True)
class KnownPartitions:
    _known: dict[Key, pb2.PartitionStatus] = field(default_factory=dict)
    _snapshot: dict[Key, pb2.PartitionStatus] = field(default_factory=dict)
    complete: bool = False
    """A snapshot was received completely."""

    def begin(self) -> None:
        """A snapshot begins; the known state stays until it is complete."""
        self._snapshot = {}

    def take(self, response: pb2.WatchPartitionsResponse) -> Told | None:
        """The rows to show after this message; None = no news."""
        match response.WhichOneof("event"):
            case "snapshot_items":
                self._snapshot.update((_key(each), each) for each in response.snapshot_items.partitions)
            case "snapshot_end":
                gone = [status for key, status in self._known.items() if key not in self._snapshot]
                self._known, self._snapshot, self.complete = self._snapshot, {}, True
                return Told(changed=self.sorted(), removed=gone)
            case "changes":
                changes = response.changes
                self._known.update((_key(each), each) for each in changes.changed)
                gone = [each for each in changes.removed if self._known.pop(_key(each), None) is not None]
                return Told(changed=sorted(changes.changed, key=_key), removed=gone)
            case _:
                pass  # A sign that the connection works.
        return None

    def sorted(self) -> list[pb2.PartitionStatus]:
        """By flow, topic and partition."""
        return [self._known[key] for key in sorted(self._known)]


def _key(status: pb2.PartitionStatus) -> Key:
    return status.flow.source, status.flow.target, status.source.topic, status.source.partition
