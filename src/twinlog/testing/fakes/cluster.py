"""A Kafka cluster in memory behind the ports of `twinlog.kafka.ports`, for tests without brokers.

It passes the same contract suite as the real one. Beyond the ports it has what tests need: transactions
(`append_transaction`), holes (`punch_holes`), truncation, group states (`set_group`), a leader that is out
(`silence`), an outage (`take_away`,
`bring_back`) and `intercept`, which runs a test's function before or after any operation:

    def refuse(call: Call) -> None:
        raise FatalKafkaError("no", reason="TOPIC_UNAUTHORIZED", code=29)

    undo = cluster.intercept("append", refuse)

It knows no principals: ACLs are kept and never enforced. Closing it keeps its state, so it can be opened by
several owners, one after the other or together.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from twinlog.errors import KafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.ports import (
    EpochEnd,
    Introduce,
    KafkaCluster,
    LogEnd,
    ManagedReader,
    ManagedWriter,
    Member,
    OffsetSpec,
    QuotaEntity,
)
from twinlog.model import Record, TopicPartition
from twinlog.testing.fakes.cluster_admin import FakeAclAdmin, FakeConfigAdmin, FakeGroupAdmin, FakeTopicAdmin
from twinlog.testing.fakes.cluster_base import Call as Call
from twinlog.testing.fakes.cluster_base import FakeClusterBase, operation
from twinlog.testing.fakes.cluster_base import Hook as Hook
from twinlog.testing.fakes.cluster_io import FakeReader, FakeWriter
from twinlog.testing.fakes.cluster_state import FakeLog
from twinlog.testing.fakes.cluster_state import Transaction as Transaction

# Client quotas and SCRAM users of a fake cluster.

_KINDS = frozenset({("user",), ("client-id",), ("client-id", "user"), ("ip",)})
_KEYS = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
)
_IP_KEYS = frozenset({"connection_creation_rate"})


class FakeQuotaAdmin(FakeClusterBase):
    """`QuotaAdmin` in memory. Nothing is throttled."""

    @operation
    async def describe_client_quotas(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        return {entity: dict(values) for entity, values in self.quotas.items()}

    @operation
    async def alter_client_quotas(
        self, changes: Mapping[QuotaEntity, Mapping[str, float | None]]
    ) -> Mapping[QuotaEntity, KafkaError | None]:
        return self.each(changes, lambda entity: self._alter_quota(entity, changes[entity]))

    @operation
    async def scram_users(self) -> Mapping[str, frozenset[str]]:
        return dict(self.users)

    def _alter_quota(self, entity: QuotaEntity, values: Mapping[str, float | None]) -> None:
        kinds = tuple(kind for kind, _ in entity.parts)
        known = _IP_KEYS if kinds == ("ip",) else _KEYS
        if kinds not in _KINDS or not known.issuperset(values):
            raise self.refusal(ErrorCode.invalid_request, "alter client quotas")
        merged = {**self.quotas.pop(entity, {}), **values}
        kept = {key: value for key, value in merged.items() if value is not None}
        if kept:
            self.quotas[entity] = kept


# Offsets and records of a fake cluster's logs.


class FakeLogAdmin(FakeClusterBase):
    """`LogAdmin` in memory, and what tests can do to a log."""

    def append_transaction(
        self, partition: TopicPartition, records: Iterable[Record], outcome: Transaction
    ) -> int:
        """Append records of one transaction, and its marker unless `outcome` is OPEN.

        Returns the transaction's number for `finish_transaction`. The records' own offsets are ignored.
        """
        log = self.log(partition, "append")
        number = log.begin()
        for record in records:
            log.append(record, number)
        if outcome is not Transaction.OPEN:
            log.finish(number, outcome)
        self.changed()
        return number

    def finish_transaction(self, partition: TopicPartition, number: int, outcome: Transaction) -> None:
        self.log(partition, "finish").finish(number, outcome)
        self.changed()

    def punch_holes(self, partition: TopicPartition, offsets: Collection[int]) -> None:
        """Remove single records, as compaction does."""
        self.log(partition, "compact").remove(set(offsets))

    def truncate(self, partition: TopicPartition, end: int) -> None:
        """Lose the log's tail, as an unclean leader election may: another leader continues."""
        self.log(partition, "truncate").truncate(end)
        self.changed()

    def elect(self, partition: TopicPartition) -> None:
        """Have another leader, which has all of the log."""
        self.log(partition, "elect").elect()

    def records(self, partition: TopicPartition) -> Sequence[Record]:
        """Every record of a log, including those of open and aborted transactions."""
        return self.log(partition, "look").records()

    @operation
    async def list_offsets(
        self, spec: OffsetSpec, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | KafkaError]:
        def answer(log: FakeLog) -> int:
            if spec is OffsetSpec.EARLIEST:
                return log.start
            return log.end if spec is OffsetSpec.LATEST else log.last_stable

        return self.each(partitions, lambda one: answer(self.log(one, f"list {spec} offsets")))

    @operation
    async def log_ends(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, LogEnd | KafkaError]:
        def end(partition: TopicPartition) -> LogEnd:
            log = self.log(partition, "ask for the end of logs")
            return LogEnd(log.end, log.leader_epoch)

        return self.each(partitions, end)

    @operation
    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, EpochEnd | KafkaError]:
        doing = "ask for the end of a leader epoch"
        return self.each(epochs, lambda one: self.log(one, doing).epoch_end(epochs[one]))

    @operation
    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | KafkaError | None]:
        doing = "look up offsets by time"
        return self.each(timestamps_ms, lambda one: self.log(one, doing).first_at(timestamps_ms[one]))

    @operation
    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        def delete(partition: TopicPartition) -> None:
            log = self.log(partition, "delete records")
            if before[partition] > log.end:
                raise self.refusal(ErrorCode.offset_out_of_range, "delete records")
            log.delete_before(before[partition])

        return self.each(before, delete)


class FakeCluster(
    FakeTopicAdmin,
    FakeConfigAdmin,
    FakeAclAdmin,
    FakeQuotaAdmin,
    FakeGroupAdmin,
    FakeLogAdmin,
):
    """`KafkaCluster` in memory. For one event loop."""

    async def __aenter__(self) -> KafkaCluster:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Keeps everything."""

    def __repr__(self) -> str:
        return f"<FakeCluster {self.alias}>"

    def reader(self, *, read_committed: bool = True) -> ManagedReader:
        return FakeReader(self, read_committed=read_committed)

    def writer(self, *, introduce: Introduce | None = None) -> ManagedWriter:
        return FakeWriter(self, introduce)

    def member(self, group_id: str, **_options: Any) -> Member:
        raise NotImplementedError("only brokers on the wire have members")

    def intercept(self, operation: str, hook: Hook, *, after: bool = False) -> Callable[[], None]:
        """Call `hook` before (or after) every call of a port's method, e.g. "append" or "create_topics".

        Returns what takes the hook away again.
        """
        return self.hooks.add(operation, hook, after=after)

    def take_away(self) -> None:
        """Every operation now raises TransientKafkaError (KAFKA_UNAVAILABLE), until `bring_back`;
        `describe_topics` has it for each topic."""
        self.hooks.available = False
        self.changed()

    def bring_back(self) -> None:
        self.hooks.available = True
