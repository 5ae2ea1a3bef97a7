"""Decides where a checkpoint goes and whether it may be written, by the rules of MM2's MirrorCheckpointTask.
Pure."""

from collections.abc import Iterable, Iterator, Mapping

from twinlog.model import Flow, TopicPartition
from twinlog.policy.replication import ReplicationPolicy
from twinlog.wire.checkpoint import Checkpoint

WRITTEN_PLACES = 4
"""Remembered places of each group and partition: a group's offset on the target may be some checkpoints
behind the last."""
MOST_OLD_ENTRIES = 100_000
"""Kept entries of groups and partitions without a committed offset on the source, about 1 KB each; a bound on
those ever deleted."""


def target_partition(policy: ReplicationPolicy, flow: Flow, partition: TopicPartition) -> TopicPartition:
    """Return the target's partition that continues `partition` of the source.

    A copy of the target's own topic goes back to the original; every other topic goes to its remote copy.
    """
    if policy.topic_source(partition.topic) == flow.target:
        # One hop: MM2 takes all that look like one from the name, and `orders` for `B.shop.orders`.
        return TopicPartition(policy.upstream_topic(partition.topic) or partition.topic, partition.partition)
    return TopicPartition(policy.format_remote_topic(flow.source, partition.topic), partition.partition)


def is_progress(last: Checkpoint | None, candidate: Checkpoint) -> bool:
    """The checkpoint guard: tell whether `candidate` may be emitted after `last` of the same group and
    partition.

    True for the first one, when the group itself went back on the source, when the target offset moves
    forward, and when one of the topics was created again. Otherwise the store merely became less precise, and
    emitting would take the group back.
    """
    return (
        last is None
        or candidate.upstream_offset < last.upstream_offset
        or candidate.downstream_offset > last.downstream_offset
        or (candidate.topic_ids is not None and candidate.topic_ids != last.topic_ids)
    )


class CheckpointHistory:
    """The latest checkpoint per group and target partition: loaded from the topic at start, then kept up to
    date.

    Also remembers the last places written for a group as checkpoints, and the last offset that was committed
    for the group on the target. Any other offset there is the group's own.

    Invariant: after `forget_old` it holds the current entries and at most `most_old` others.
    """

    def __init__(self, *, most_old: int = MOST_OLD_ENTRIES) -> None:
        self._most_old = most_old
        self._latest: dict[str, dict[TopicPartition, Checkpoint]] = {}
        self._written: dict[tuple[str, TopicPartition], tuple[tuple[int, int], ...]] = {}
        """Upstream and downstream offsets, the newest last. The entry written last comes last."""
        self._committed: dict[tuple[str, TopicPartition], tuple[int, int]] = {}
        """The same of the last offset committed on the target: any number of checkpoints may follow it."""
        self._copy_ids: dict[tuple[str, TopicPartition], str] = {}

    def __len__(self) -> int:
        """The number of pairs of group and partition."""
        return len(self._written)

    def remember(self, checkpoint: Checkpoint) -> None:
        """Add a checkpoint that was read or written."""
        self._latest.setdefault(checkpoint.group, {})[checkpoint.partition] = checkpoint
        self._add(checkpoint, checkpoint.downstream_offset)

    def on_written(self, checkpoint: Checkpoint, offset: int) -> None:
        """Add the offset that was committed for the group on the target after a checkpoint."""
        self._add(checkpoint, offset)
        self._committed[checkpoint.group, checkpoint.partition] = checkpoint.upstream_offset, offset

    def confirm(self, group: str, partition: TopicPartition, copy_id: str) -> None:
        """The latest checkpoint of the group is of the topic with this id: its offset on the source has a
        place there now."""
        self._copy_ids[group, partition] = copy_id

    def copy_id(self, checkpoint: Checkpoint) -> str | None:
        """Kafka's id of the copy that a latest checkpoint is of; "" where brokers have none, None = not
        known: it was read, and the group has had no offset on the source since."""
        return self._copy_ids.get((checkpoint.group, checkpoint.partition))

    def _add(self, checkpoint: Checkpoint, offset: int) -> None:
        key = checkpoint.group, checkpoint.partition
        place = checkpoint.upstream_offset, offset
        former = self._written.pop(key, ())
        self._written[key] = former if place in former else (*former[1 - WRITTEN_PLACES :], place)

    def wrote(self, group: str, partition: TopicPartition, offset: int | None, *, upstream: int) -> bool:
        """Whether `offset` was written for the group when it had read at most up to `upstream`.

        A lower offset for `upstream` shows that it is wrong, and no consumer of the target committed it: it
        may be replaced. If the group was put back on the source, it is right and stays.
        """
        return any(
            written == offset and read_to <= upstream for read_to, written in self._places(group, partition)
        )

    def committed(self, group: str, partition: TopicPartition, offset: int) -> bool:
        """Whether `offset` was written for the group, wherever the group was then. Of a group that did not
        move for long only the last places are known."""
        return any(written == offset for _, written in self._places(group, partition))

    def wrote_before(self, checkpoint: Checkpoint, offset: int) -> bool:
        """As `wrote`, for the group, partition and upstream offset of a checkpoint."""
        return self.wrote(checkpoint.group, checkpoint.partition, offset, upstream=checkpoint.upstream_offset)

    def wrote_further(
        self, group: str, partition: TopicPartition, offset: int | None, *, upstream: int
    ) -> bool:
        """Whether `offset` was written for the group only when it had read beyond `upstream`: the group was
        put back since."""
        return any(
            written == offset and read_to > upstream for read_to, written in self._places(group, partition)
        ) and not self.wrote(group, partition, offset, upstream=upstream)

    def _places(self, group: str, partition: TopicPartition) -> Iterator[tuple[int, int]]:
        key = group, partition
        yield from self._written.get(key, ())
        if key in self._committed:
            yield self._committed[key]

    def admits(self, candidate: Checkpoint, *, lower: bool = False) -> bool:
        """Ask the guard about `candidate`. Does not remember it; `remember` does that after the write.

        `lower`: it may lie before the last one, because it was compared with the record, or the last one is
        void.
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
        """Forget the oldest entries of groups and partitions that are not `current`, if too many are kept;
        return their number.

        `current`: groups with an offset on the source, and the target's partitions with their copies. Not
        read while there are few entries.
        """
        if len(self._written) <= self._most_old:
            return 0
        kept = frozenset(current)
        old = [key for key in self._written if key not in kept]
        too_many = old[: max(0, len(old) - self._most_old)]
        for group, partition in too_many:
            del self._written[group, partition]
            self._committed.pop((group, partition), None)
            self._copy_ids.pop((group, partition), None)
            self._latest[group].pop(partition, None)
            if not self._latest[group]:
                del self._latest[group]
        return len(too_many)

    def become(self, read: "CheckpointHistory") -> None:
        """Hold what `read` holds, and nothing else: another process may have written meanwhile."""
        vars(self).update(vars(read))
