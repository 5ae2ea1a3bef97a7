"""Where a checkpoint goes, and whether it may: the rules of MM2's MirrorCheckpointTask. Pure."""

from collections.abc import Iterable, Mapping

from twinlog.model import Flow, TopicPartition
from twinlog.policy.replication import ReplicationPolicy
from twinlog.wire.checkpoint import Checkpoint

WRITTEN_PLACES = 4
"""Places remembered of each group and partition: a group's offset on the target may be some checkpoints
behind the last one."""
MOST_OLD_ENTRIES = 100_000
"""Entries kept of groups and partitions without a committed offset on the source, about 1 KB each: as
many groups and topics as were ever deleted would be too much."""


def target_partition(policy: ReplicationPolicy, flow: Flow, partition: TopicPartition) -> TopicPartition:
    """Return the partition on the target that continues where `partition` of the source stands.

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

    Invariant: after `forget_old` it holds what is current and at most `most_old` entries beside it.
    """

    def __init__(self, *, most_old: int = MOST_OLD_ENTRIES) -> None:
        self._most_old = most_old
        self._latest: dict[str, dict[TopicPartition, Checkpoint]] = {}
        self._written: dict[tuple[str, TopicPartition], tuple[tuple[int, int], ...]] = {}
        """Upstream and downstream offsets, the newest last. What was written last comes last."""

    def __len__(self) -> int:
        """How many pairs of group and partition it knows."""
        return len(self._written)

    def remember(self, checkpoint: Checkpoint) -> None:
        """Take a checkpoint that was read or written."""
        self._latest.setdefault(checkpoint.group, {})[checkpoint.partition] = checkpoint
        self.on_written(checkpoint, checkpoint.downstream_offset)

    def on_written(self, checkpoint: Checkpoint, offset: int) -> None:
        """Take the offset that was committed for the group on the target because of a checkpoint."""
        key = checkpoint.group, checkpoint.partition
        place = checkpoint.upstream_offset, offset
        former = self._written.pop(key, ())
        self._written[key] = former if place in former else (*former[1 - WRITTEN_PLACES :], place)

    def wrote(self, group: str, partition: TopicPartition, offset: int | None, *, upstream: int) -> bool:
        """Whether `offset` was written for the group when it had read no more than up to `upstream`.

        A lower offset for `upstream` proves it wrong, and no consumer of the target committed it: it may be
        replaced. Where the group was put back on the source it is not wrong, and stays.
        """
        return any(
            written == offset and read_to <= upstream
            for read_to, written in self._written.get((group, partition), ())
        )

    def wrote_further(
        self, group: str, partition: TopicPartition, offset: int | None, *, upstream: int
    ) -> bool:
        """Whether `offset` was written for the group only when it had read further than `upstream`: it was
        put back since."""
        return any(
            written == offset and read_to > upstream
            for read_to, written in self._written.get((group, partition), ())
        ) and not self.wrote(group, partition, offset, upstream=upstream)

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

    def forget_old(self, current: Iterable[tuple[str, TopicPartition]]) -> int:
        """Forget what was written longest ago of groups and partitions that are not `current`: too many are
        kept. Returns how many were forgotten.

        `current`: groups with an offset on the source, and the partitions of the target that have its copies;
        not looked at while there are few entries.
        """
        if len(self._written) <= self._most_old:
            return 0
        kept = frozenset(current)
        old = [key for key in self._written if key not in kept]
        too_many = old[: max(0, len(old) - self._most_old)]
        for group, partition in too_many:
            del self._written[group, partition]
            self._latest[group].pop(partition, None)
            if not self._latest[group]:
                del self._latest[group]
        return len(too_many)

    def clear(self) -> None:
        """Forget everything: another process may have written meanwhile."""
        self._latest.clear()
        self._written.clear()
