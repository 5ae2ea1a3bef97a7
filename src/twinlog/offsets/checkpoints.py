"""From a group's committed offsets on the source to checkpoints on the target: MM2's MirrorCheckpointTask,
pure.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from twinlog.model import Flow, TopicPartition
from twinlog.offsets.sync_store import OffsetSyncStore
from twinlog.policy.replication import ReplicationPolicy
from twinlog.wire.checkpoint import Checkpoint


class CommittedPosition(Protocol):
    """A group's committed offset, as `twinlog.kafka.ports.CommittedOffset`."""

    @property
    def next_offset(self) -> int: ...

    @property
    def metadata(self) -> str: ...


def target_partition(policy: ReplicationPolicy, flow: Flow, partition: TopicPartition) -> TopicPartition:
    """Return the partition on the target that goes on where `partition` of the source stands.

    A copy of the target's own topic goes back to the original; every other topic goes to its remote copy.
    """
    if policy.topic_source(partition.topic) == flow.target:
        return TopicPartition(policy.original_topic(partition.topic), partition.partition)
    return TopicPartition(policy.format_remote_topic(flow.source, partition.topic), partition.partition)


def is_progress(last: Checkpoint | None, candidate: Checkpoint) -> bool:
    """The checkpoint guard: tell whether `candidate` may be emitted after `last` of the same group and
    partition.

    True for the first one, when the group itself went back on the source, and when the target offset moves
    forward. Otherwise the store merely became less precise, and emitting would take the group back.
    """
    return (
        last is None
        or candidate.upstream_offset < last.upstream_offset
        or candidate.downstream_offset > last.downstream_offset
    )


class CheckpointHistory:
    """The latest checkpoint per group and target partition: loaded from the topic at start, then kept up to
    date.
    """

    def __init__(self) -> None:
        self._latest: dict[str, dict[TopicPartition, Checkpoint]] = {}

    def load(self, checkpoints: Iterable[Checkpoint]) -> None:
        """Take checkpoints in the order of their topic; the latest of each key counts."""
        for checkpoint in checkpoints:
            self.remember(checkpoint)

    def remember(self, checkpoint: Checkpoint) -> None:
        """Take a checkpoint that was read or written."""
        self._latest.setdefault(checkpoint.group, {})[checkpoint.partition] = checkpoint

    def admits(self, candidate: Checkpoint) -> bool:
        """Ask the guard about `candidate`; changes nothing: what was written is remembered by `remember`."""
        return is_progress(self._latest.get(candidate.group, {}).get(candidate.partition), candidate)

    def latest(self, group: str) -> Mapping[TopicPartition, Checkpoint]:
        """Return the latest checkpoint per target partition of a group."""
        return self._latest.get(group, {})

    def groups(self) -> frozenset[str]:
        return frozenset(self._latest)


class CheckpointPlanner:
    """Turns committed offsets of one flow into checkpoints."""

    def __init__(self, *, policy: ReplicationPolicy, flow: Flow, store: OffsetSyncStore) -> None:
        self._policy = policy
        self._flow = flow
        self._store = store

    def checkpoint(
        self, group: str, partition: TopicPartition, committed: CommittedPosition | None
    ) -> Checkpoint | None:
        """Translate one committed offset; None when there is none, or it cannot be translated."""
        if committed is None:
            return None
        translation = self._store.translate(partition, committed.next_offset)
        if translation.downstream_offset is None:
            return None
        return Checkpoint(
            group=group,
            partition=target_partition(self._policy, self._flow, partition),
            upstream_offset=committed.next_offset,
            downstream_offset=translation.downstream_offset,
            metadata=committed.metadata,
        )

    def checkpoints_for_group(
        self,
        group: str,
        committed: Mapping[TopicPartition, CommittedPosition | None],
        history: CheckpointHistory,
    ) -> list[Checkpoint]:
        """Return the checkpoints of a group that the guard admits; the caller remembers those it wrote.

        `committed` holds only partitions whose topics pass the topic filter.
        """
        candidates = (self.checkpoint(group, partition, offset) for partition, offset in committed.items())
        return [candidate for candidate in candidates if candidate is not None and history.admits(candidate)]
