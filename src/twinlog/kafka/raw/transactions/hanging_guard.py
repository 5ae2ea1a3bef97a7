"""Keeps a producer from writing to a partition where a transaction of its own hangs (KIP-664).

A coordinator that ends a transaction leaves out a partition without a leader at that moment, because it takes
it for deleted. The records stay open there, and the producer's next transaction on that partition would
include them: with its commit aborted records would appear, with its abort committed records would be lost.

Invariant A: the first batch of a transaction is sent to a partition only when its leader has reported that
nothing of this producer is open there, and has been heard from ever since.

Invariant B: if no other transaction follows, the leader is asked whether the last one ended there. Until then
read_committed consumers may not see it, although its commit was acknowledged.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from twinlog.errors import KafkaError
from twinlog.kafka.errors import HANGING_TRANSACTION, KAFKA_CLIENT_ERRORS, from_reason, translate
from twinlog.kafka.protocol.data_connection import DataConnection
from twinlog.kafka.raw.leaders import LeaderAnswers, about, partition_error
from twinlog.kafka.raw.lookups import OpenTransaction, describe_producers_request
from twinlog.model import TopicPartition

OUTCOME, COMMITTED = "outcome", "COMMITTED"
"""In the metadata of a refusal: how the hanging transaction ended, if that is certain."""

_DOING = "ask for open transactions"
_ENDING_SECONDS = 0.5
"""Markers of a transaction are written in a few milliseconds."""

_Contact = tuple[DataConnection, int]


@dataclass(slots=True, eq=False, repr=False)
class HangingGuard:
    """Asks leaders before the first batch; the caller sends nothing to partitions that are not clear."""

    alias: str
    _: KW_ONLY
    pause_seconds: float
    refuse: Callable[[Mapping[TopicPartition, KafkaError]], None]
    """Gets the partitions where something hangs."""
    not_clear: Callable[[KafkaError | None], None]
    """Gets the leader's error, or None; the caller asks again `pause_seconds` later."""
    changed: Callable[[], None]
    """Called when some are clear."""
    now: Callable[[], float]
    _committed_from_epoch: int = 0
    _open_since: dict[TopicPartition, float] = field(default_factory=dict)
    _ask_again_at: float = 0.0
    _clear: dict[TopicPartition, _Contact] = field(default_factory=dict)
    _ended_at: dict[TopicPartition, float] = field(default_factory=dict)
    """Partitions whose last transaction has ended, and whose leader has not confirmed it yet."""
    _looking: set[TopicPartition] = field(default_factory=set)
    _asked: set[TopicPartition] = field(default_factory=set)

    def is_clear(self, partition: TopicPartition, connection: DataConnection) -> bool:
        """Whether the first batch of a transaction may be sent to this partition on this connection."""
        return self._clear.get(partition) == (connection, connection.contact) and not connection.is_quiet()

    def ask(
        self,
        partitions_by_connection: Mapping[DataConnection, set[TopicPartition]],
        producer_id: int,
    ) -> None:
        """Ask the leaders of partitions that are not clear, unless a request is in flight or failed a moment
        ago. Does not block."""
        if self.now() < self._ask_again_at:
            return
        for connection, partitions in partitions_by_connection.items():
            new = partitions - self._asked
            if new:
                failed, hangs = partial(self._unanswered, connection), partial(self._blocks, connection)
                self._post(connection, new, producer_id, self._asked, failed, hangs)

    def begun(self, partition: TopicPartition) -> None:
        """The partition is in a transaction again."""
        self._ended_at.pop(partition, None)
        self._open_since.pop(partition, None)

    def ended(self, partitions: Iterable[TopicPartition]) -> None:
        """The coordinator has acknowledged the end of their transaction."""
        self._ended_at.update(dict.fromkeys(partitions, self.now()))

    def ended_before(self, before: float) -> set[TopicPartition]:
        """Partitions whose last transaction ended before this time and may hang, without those whose leader
        was asked and has not answered yet."""
        return {
            partition
            for partition, at in self._ended_at.items()
            if at <= before and partition not in self._looking
        }

    @property
    def first_ended_at(self) -> float | None:
        """When the first transaction ended that may hang; None: none may."""
        return min(self._ended_at.values(), default=None)

    def look(
        self, partitions_by_connection: Mapping[DataConnection, Collection[TopicPartition]], producer_id: int
    ) -> None:
        """Ask the leaders whether the last transactions of partitions have ended there; `partitions` come
        from `ended_before`. Does not block; repeat it for those that `ended_before` still returns."""
        for connection, partitions in partitions_by_connection.items():
            ended_at = {partition: self._ended_at[partition] for partition in partitions}
            failed, hangs = partial(self._looked_in_vain, ended_at), partial(self._never_ended, ended_at)
            self._post(connection, set(partitions), producer_id, self._looking, failed, hangs)

    def all_committed_from(self, epoch: int) -> None:
        """Every transaction of the producer that has ended since this epoch was committed."""
        self._committed_from_epoch = epoch

    def forget(self) -> None:
        """The producer has another id from now on."""
        self._clear.clear()
        self._open_since.clear()
        self._ended_at.clear()

    def _post(
        self,
        connection: DataConnection,
        partitions: set[TopicPartition],
        producer_id: int,
        waiting: set[TopicPartition],
        failed: Callable[[set[TopicPartition], KafkaError], None],
        hangs: Callable[[TopicPartition, OpenTransaction | None], bool],
    ) -> None:
        """`waiting` has the partitions until the answer; `hangs` gets the producer's open transaction."""

        def told(answered: "asyncio.Future[LeaderAnswers[list[OpenTransaction]]]") -> None:
            waiting.difference_update(partitions)
            if answered.cancelled():
                return
            if error := answered.exception():
                failed(partitions, translate(error, _DOING, alias=self.alias))
                return
            hanging: dict[TopicPartition, KafkaError] = {}
            for partition, code, opened in answered.result():
                own = next((one for one in opened if one.producer_id == producer_id), None)
                if code:
                    failed({partition}, partition_error(code, partition, _DOING, alias=self.alias))
                elif hangs(partition, own) and own is not None:
                    hanging[partition] = about(partition, self._error(partition, own))
            if hanging:
                self.refuse(hanging)

        try:
            answered = connection.post(describe_producers_request(partitions))
        except KAFKA_CLIENT_ERRORS as error:
            failed(partitions, translate(error, _DOING, alias=self.alias))
            return
        waiting |= partitions
        answered.add_done_callback(told)

    def _blocks(
        self, connection: DataConnection, partition: TopicPartition, own: OpenTransaction | None
    ) -> bool:
        """If it does not, it is clear, or the caller asks again soon."""
        if own is None:
            self._open_since.pop(partition, None)
            self._clear[partition] = (connection, connection.contact)
            self.changed()
        elif self._stays_open(partition):
            return True
        else:
            self._again(None)
        return False

    def _never_ended(
        self, ended_at: Mapping[TopicPartition, float], partition: TopicPartition, own: OpenTransaction | None
    ) -> bool:
        """Not one that was written to since: the open transaction may be the next one. One that may just be
        ending is looked at again."""
        if self._ended_at.get(partition) != ended_at[partition]:
            return False
        if own is not None and not self._stays_open(partition):
            return False
        del self._ended_at[partition]
        if own is None:
            self._open_since.pop(partition, None)
        return True

    def _looked_in_vain(
        self,
        ended_at: Mapping[TopicPartition, float],
        partitions: set[TopicPartition],
        failure: KafkaError,
    ) -> None:
        """A broker that is too old, or does not allow the request, is not asked again."""
        for partition in () if failure.retriable else partitions:
            if self._ended_at.get(partition) == ended_at[partition]:
                del self._ended_at[partition]

    def _stays_open(self, partition: TopicPartition) -> bool:
        """A transaction that was found open may just be ending; one that stays open hangs."""
        now = self.now()
        return now - self._open_since.setdefault(partition, now) >= _ENDING_SECONDS

    def _unanswered(
        self, connection: DataConnection, partitions: set[TopicPartition], failure: KafkaError
    ) -> None:
        """A broker that is too old, or does not allow the request, counts as clear."""
        if failure.retriable:
            self._again(failure)
        else:
            self._clear.update(dict.fromkeys(partitions, (connection, connection.contact)))
            self.changed()

    def _again(self, failure: KafkaError | None) -> None:
        self._ask_again_at = self.now() + self.pause_seconds
        self.not_clear(failure)

    def _error(self, partition: TopicPartition, opened: OpenTransaction) -> KafkaError:
        error = from_reason(
            HANGING_TRANSACTION,
            f"write to {partition}",
            alias=self.alias,
            detail=f"producer id {opened.producer_id}, epoch {opened.producer_epoch},"
            f" open since offset {opened.first_offset}",
        )
        if opened.producer_epoch >= self._committed_from_epoch:
            error.metadata[OUTCOME] = COMMITTED
        return error
