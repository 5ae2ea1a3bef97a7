"""Fills the holes of a task's preserved copies: several at a time, in one run after the other; by markers
written at the leader if the target allows it, otherwise by transactions (docs/adr/0014).

If a hole was promised to be filled invisibly because of markers, it is filled invisibly without them too: by
one transaction for each offset, however long that takes.

The filler's id is initialised before anything is written, because only then do logs end where they seem to
(rule 5 of docs/adr/0008), and again after each failure.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field

from twinlog.clock import Clock
from twinlog.errors import KafkaError
from twinlog.kafka.deadline import pause
from twinlog.model import TopicPartition
from twinlog.policy.expected_offsets import MOST_AT_LEADER
from twinlog_source.log.facts import FENCED
from twinlog_source.preserved.append_log import Phase
from twinlog_source.preserved.append_steps import Hole
from twinlog_source.preserved.filler import Filler
from twinlog_source.preserved.leader_filler import Holes, LeaderFiller, nothing_more
from twinlog_source.task.writing.preserved_copy import PreservedCopy

FIRST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 5.0


@dataclass(slots=True, kw_only=True)
class HoleFilling:
    """The part of `PreservedWriter` that fills holes. The callbacks are the writer's."""

    transactions: Filler
    markers: LeaderFiller | None
    partitions: Mapping[TopicPartition, PreservedCopy]
    """Those of the writer, by target partition."""
    clock: Clock
    may_write: Callable[[], bool]
    """Whether the task may still write."""
    fenced: Callable[[KafkaError], None]
    """Called when another owner has taken over the filler's id: the task may no longer write."""
    back_off: Callable[[Iterable[PreservedCopy], KafkaError], None]
    moved: Callable[[PreservedCopy], None]
    """Called when the outcome for a partition is known."""
    is_open: bool = False
    """Whether the filler's id was initialised since the task began."""
    _is_filling: bool = False
    _holes: dict[TopicPartition, Hole] = field(default_factory=dict)
    """Those of the next run."""

    def add(self, partition: PreservedCopy, hole: Hole) -> None:
        """Fill a hole in this run, or in the next one."""
        self._holes[partition.target] = hole

    def drop(self) -> None:
        """Fill none of the holes that are not begun."""
        holes, self._holes = self._holes, {}
        for target in holes:
            if target in self.partitions:
                self.partitions[target].appends.not_filled()

    async def open(self) -> None:
        """Initialise the filler's id, once. Returns early when the task may no longer write."""
        self.is_open = self._are_open or await self._open()

    async def open_fillers(self) -> None:
        """Get ready, also after a failure: transactions that the former owner was ending have ended then.
        Raises KafkaError."""
        if not self.transactions.is_open:
            await self.transactions.open()
        if self.markers is not None and not self.markers.is_open:
            await self.markers.open()
        if self.markers is not None and self.markers.is_allowed:
            self.transactions.most_markers = MOST_AT_LEADER

    @property
    def _are_open(self) -> bool:
        return self.transactions.is_open and (self.markers is None or self.markers.is_open)

    def begin(self) -> Coroutine[None, None, None] | None:
        """What fills the holes that were added, and those that are added meanwhile; the caller has to run it.
        None = nothing was added, or the last run has not ended."""
        if self._is_filling or not self._holes:
            return None
        self._is_filling = True
        return self._run()

    async def _run(self) -> None:
        try:
            while self._holes and self.may_write():
                await self._fill(self._begun())
        finally:
            self._is_filling = False

    def _begun(self) -> dict[TopicPartition, Hole]:
        """The holes that were added. Their costs count from now on: a partition does not pay for the time in
        which others are filled."""
        holes, self._holes = self._holes, {}
        for target in holes:
            if target in self.partitions:
                self.partitions[target].filling_since = self.clock.monotonic()
        return holes

    async def _open(self) -> bool:
        """Initialise the filler's id, which ends what its former owner, or this one, left open. Retried until
        it succeeds; False when this task may no longer write."""
        pause_seconds = FIRST_PAUSE_SECONDS
        while self.may_write():
            try:
                await self.open_fillers()
            except KafkaError as error:
                if error.reason == FENCED:
                    self.fenced(error)
                    return False
                waiting = [each for each in self.partitions.values() if each.appends.phase is not Phase.SURE]
                self.back_off(waiting, error)
                await pause(pause_seconds)
                pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)
            else:
                return True
        return False

    async def _fill(self, left: dict[TopicPartition, Hole]) -> None:

        def ended(target: TopicPartition, is_filled: bool) -> None:
            del left[target]
            self._ended(target, is_filled=is_filled)

        def left_out(target: TopicPartition, error: KafkaError) -> None:
            self.back_off([self.partitions[target]], error)
            ended(target, False)

        def more() -> Holes:
            begun = self._begun() if self.may_write() else {}
            left.update(begun)
            return _ranges(begun)

        try:
            rest = _ranges(left)
            if self.markers is not None:
                rest = await self.markers.fill(rest, ended, left_out)
                # Other holes wait for these, if leaders write their markers: that is faster.
                more = nothing_more if self.markers.is_allowed else more
            if rest:
                await self.transactions.fill(rest, ended, left_out, more)
        except KafkaError as error:
            if error.reason == FENCED:
                self.fenced(error)
                return
            self._blame(left, error)
            # First wait: what the failed transaction left open ends with a marker in each of these logs.
            if not await self._open():
                return
        for target in left:
            self._ended(target, is_filled=False)

    def _ended(self, target: TopicPartition, *, is_filled: bool) -> None:
        each = self.partitions.get(target)
        if each is None:
            return
        each.appends.filled(for_certain=is_filled)
        if is_filled:
            each.hole_cost.filled(each.filling_since, self.clock.monotonic())
            each.failures, each.problem = 0, None
        self.moved(each)

    def _blame(self, holes: Mapping[TopicPartition, Hole], error: KafkaError) -> None:
        """The partition that caused the error; the others only shared its transaction."""
        about = error.metadata.get("topic"), error.metadata.get("partition")
        at_fault = [target for target in holes if (target.topic, str(target.partition)) == about]
        self.back_off([self.partitions[target] for target in at_fault or holes], error)


def _ranges(holes: Mapping[TopicPartition, Hole]) -> Holes:
    return {target: (hole.first, hole.count) for target, hole in holes.items()}
