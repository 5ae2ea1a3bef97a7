"""Where a checkpoint goes, and whether it may: the rules of MM2's MirrorCheckpointTask. Pure."""

from collections.abc import Mapping

from twinlog.model import Flow, TopicPartition
from twinlog.policy.replication import ReplicationPolicy
from twinlog.wire.checkpoint import Checkpoint


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
