"""Where a checkpoint goes, and whether it may: the rules of MM2's MirrorCheckpointTask. Pure."""

from collections.abc import Mapping

from twinlog.model import Flow, TopicPartition
from twinlog.policy.replication import ReplicationPolicy
from twinlog.wire.checkpoint import Checkpoint

WRITTEN_PLACES = 4
"""Places remembered of each group and partition: a group's offset on the target may be some checkpoints
behind the last one."""


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

    It also knows the last few places that were written for a group, as checkpoints or as offsets of the group
    on the target: any other offset there is the group's own.
    """

    def __init__(self) -> None:
        self._latest: dict[str, dict[TopicPartition, Checkpoint]] = {}
        self._written: dict[tuple[str, TopicPartition], tuple[tuple[int, int], ...]] = {}
        """Upstream and downstream offsets, the newest last."""

    def remember(self, checkpoint: Checkpoint) -> None:
        """Take a checkpoint that was read or written."""
        self._latest.setdefault(checkpoint.group, {})[checkpoint.partition] = checkpoint
        self.on_written(checkpoint, checkpoint.downstream_offset)

    def on_written(self, checkpoint: Checkpoint, offset: int) -> None:
        """Take the offset that was committed for the group on the target because of a checkpoint."""
        key = checkpoint.group, checkpoint.partition
        place = checkpoint.upstream_offset, offset
        former = self._written.get(key, ())
        if place not in former:
            self._written[key] = (*former[1 - WRITTEN_PLACES :], place)

    def wrote(self, group: str, partition: TopicPartition, offset: int | None, *, upstream: int) -> bool:
        """Whether `offset` was written for the group when it had read no more than up to `upstream`.

        A lower offset for `upstream` proves it wrong, and no consumer of the target committed it: it may be
        replaced. Where the group was put back on the source it is not wrong, and stays.
        """
        return any(
            written == offset and read_to <= upstream
            for read_to, written in self._written.get((group, partition), ())
        )

    def admits(self, candidate: Checkpoint, *, lower: bool = False) -> bool:
        """Ask the guard about `candidate`; changes nothing: what was written is remembered by `remember`.

        `lower`: it may lie before the last one, for it was compared with the record, or the last one is void.
        """
        last = self._latest.get(candidate.group, {}).get(candidate.partition)
        if last is not None and lower and candidate.downstream_offset < last.downstream_offset:
            return True
        return is_progress(last, candidate)

    def latest(self, group: str) -> Mapping[TopicPartition, Checkpoint]:
        """Return the latest checkpoint per target partition of a group."""
        return self._latest.get(group, {})

    def groups(self) -> frozenset[str]:
        return frozenset(self._latest)

    def clear(self) -> None:
        """Forget everything: another process may have written meanwhile."""
        self._latest.clear()
        self._written.clear()
