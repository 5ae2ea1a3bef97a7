"""The numbers of the newest marker in each log, as of its end (docs/adr/0014)."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from twinlog.errors import KafkaError
from twinlog.kafka.ports import EpochEnd, LogEnd
from twinlog.kafka.raw import DataClientPool, epoch_ends
from twinlog.kafka.raw.offset_lookup import log_ends
from twinlog.kafka.raw.producer_states import ProducerStates, producer_states
from twinlog.model import TopicPartition
from twinlog_source.preserved.fillers import Ended, Holes, LeftOut
from twinlog_source.preserved.marker_numbers import MarkerState

A = TypeVar("A")


class MarkerStates:
    """Read once for each log; afterwards they follow from our own markers. If anything else is written in
    between, the leader refuses our next marker."""

    def __init__(self, reads: DataClientPool, *, timeout_seconds: float) -> None:
        """`reads` may read the copies."""
        self._reads = reads
        self._timeout_seconds = timeout_seconds
        self._known: dict[TopicPartition, MarkerState] = {}

    def __getitem__(self, partition: TopicPartition) -> MarkerState:
        return self._known[partition]

    def __setitem__(self, partition: TopicPartition, state: MarkerState) -> None:
        self._known[partition] = state

    def forget(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Read them again before the next marker; None = of all logs."""
        for partition in list(self._known) if partitions is None else partitions:
            self._known.pop(partition, None)

    async def at_end(
        self, holes: Holes, producer_id: int, ended: Ended, left_out: LeftOut
    ) -> dict[TopicPartition, tuple[int, int]]:
        """The holes that begin at the end of their log, for which the numbers are known now; the others are
        reported. Raises KafkaError when no broker can be reached."""
        asked = [partition for partition in holes if partition not in self._known]
        if not asked:
            return dict(holes)
        told: set[TopicPartition] = set()

        def answered(found: Mapping[TopicPartition, A | KafkaError]) -> dict[TopicPartition, A]:
            answers: dict[TopicPartition, A] = {}
            for partition, answer in found.items():
                if isinstance(answer, KafkaError):
                    told.add(partition)
                    left_out(partition, answer)
                else:
                    answers[partition] = answer
            return answers

        # Read the numbers between two reads of the end: if both ends are equal, nothing was written
        # meanwhile.
        seconds = self._timeout_seconds
        ends: dict[TopicPartition, LogEnd] = answered(
            await log_ends(self._reads, asked, timeout_seconds=seconds)
        )
        known: dict[TopicPartition, ProducerStates] = answered(
            await producer_states(self._reads, ends, timeout_seconds=seconds)
        )
        epochs = {partition: ends[partition].leader_epoch for partition in known}
        leader_ends: dict[TopicPartition, EpochEnd] = answered(
            await epoch_ends(self._reads, epochs, timeout_seconds=seconds)
        )
        for partition, leader_end in leader_ends.items():
            if holes[partition][0] == ends[partition].offset == leader_end.end_offset:
                self._known[partition] = _state_of(known[partition], producer_id)
            else:
                told.add(partition)
                ended(partition, False)
        return {partition: hole for partition, hole in holes.items() if partition not in told}


def _state_of(producers: ProducerStates, producer_id: int) -> MarkerState:
    known = producers.get(producer_id)
    return (
        MarkerState() if known is None else MarkerState(known.producer_epoch, max(known.coordinator_epoch, 0))
    )
