"""A Kafka cluster in memory behind the ports of `twinlog.kafka.ports`: the state and the handlers of
`twinlog.testing.broker`, and the product's own requests, without a wire between them.

Beyond the ports it has what tests need: records of transactions (`append_transaction`), holes
(`punch_holes`), group states (`set_group`), an outage (`take_away`, `bring_back`), and `intercept`, which
runs a test's function before or after any operation:

    def refuse(call: Call) -> None:
        raise FatalKafkaError("no", reason="TOPIC_UNAUTHORIZED", code=29)

    undo = cluster.intercept("append", refuse)

All that a broker knows is in `kafka`. Nobody's rights are looked at: ACLs are kept and never enforced.
Closing it keeps its state, so it can be opened by several owners, one after the other or together.
"""

import base64
import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableSet, Sequence
from random import SystemRandom
from typing import Any, Self, TypeVar, cast

from twinlog.batches import Batch, EndMarker
from twinlog.batches.bodies import DecodedRecord, RawHeaders
from twinlog.batches.outgoing import Seal, sealed
from twinlog.batches.recode_lane import NewRecord, build_batch
from twinlog.batches.visibility import AbortedTransaction, Visibility, VisibilityTracker
from twinlog.clock import Clock, SystemClock
from twinlog.errors import KafkaError, StateError, TransientKafkaError
from twinlog.kafka.admin.settings import (
    AclAdminMixin,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    ConfigAdminMixin,
)
from twinlog.kafka.admin.topics import TopicAdminMixin
from twinlog.kafka.cluster import GroupAdminMixin, QuotaAdminMixin
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import from_code
from twinlog.kafka.groups.coordinators import GroupCoordinators
from twinlog.kafka.groups.offsets import LISTED_PROTOCOLS, GroupDescriptionsClient, GroupOffsetsClient
from twinlog.kafka.outage import Outage
from twinlog.kafka.ports import (
    NO_BROKERS,
    AclAdmin,
    AclBinding,
    ConfigAdmin,
    EpochEnd,
    FetchedRecords,
    GroupAdmin,
    Introduce,
    KafkaCluster,
    LogAdmin,
    LogEnd,
    ManagedReader,
    ManagedWriter,
    Member,
    OffsetSpec,
    Presence,
    QuotaAdmin,
    TopicAdmin,
    TopicDescription,
)
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.connection import DataClient
from twinlog.kafka.protocol.metadata import Metadata, Replicas, TopicMetadata
from twinlog.kafka.protocol.requests import SchemaRequest, build, request_schema, response_schema
from twinlog.kafka.raw.fetch.wire import FetchedPartition
from twinlog.kafka.reader import read_records
from twinlog.model import Headers, Record, TimestampType, TopicPartition
from twinlog.testing.broker import calls
from twinlog.testing.broker.acls import Acl, Authorizer, Login
from twinlog.testing.broker.appending import append_batch, append_marker
from twinlog.testing.broker.classic_group import ClassicGroup, ClassicMember, ClassicState, Wish
from twinlog.testing.broker.cluster import Cluster
from twinlog.testing.broker.compaction import remove
from twinlog.testing.broker.groups import Committed
from twinlog.testing.broker.handlers import HANDLERS
from twinlog.testing.broker.handlers.fetch import find_offset
from twinlog.testing.broker.log import PartitionLog
from twinlog.testing.broker.partitions import Partition
from twinlog.testing.broker.producer_states import AppendError
from twinlog.testing.broker.stored import StoredBatch, stored, whole_batch
from twinlog.testing.fakes.hooks import Call as Call
from twinlog.testing.fakes.hooks import Hook as Hook
from twinlog.testing.fakes.hooks import Hooks, operation
from twinlog.testing.source_batches import source_batch

Thing = TypeVar("Thing")
Answer = TypeVar("Answer")
_PRINCIPAL = "User:test"
_RELEASE = calls.KAFKA_4_3
_PROTOCOLS = {"classic": "consumer", "consumer": "consumer", "share": "share", "streams": "streams"}


class _Wire(DataClientPool):
    """Asks a broker's handlers with what the requests have: nothing is encoded."""

    def __init__(self, alias: str, kafka: Cluster) -> None:
        super().__init__(alias, {}, timeout_seconds=30.0)
        self._kafka = kafka

    async def client(self, doing: str) -> DataClient:
        return cast("DataClient", self)

    async def ask_controller(self, ask: Callable[[int], Any], *, no_other: bool) -> Any:
        return await ask(self._kafka.controller_id)

    async def any_node(self, doing: str) -> int:
        return self._kafka.controller_id

    async def make_known(self, node_ids: Collection[int], doing: str) -> None:
        """Every broker is."""

    async def send_any(self, request: Any, doing: str, **_how: Any) -> Any:
        return await self.send(self._kafka.controller_id, request, doing)

    async def send(self, node_id: int, request: SchemaRequest, doing: str) -> Any:
        key = request.api_key
        version = min(request.versions[-1], (_RELEASE.offered(key) or (0, -1))[1])
        call = calls.Call(
            cluster=self._kafka,
            node=self._kafka.nodes[node_id],
            release=_RELEASE,
            api_key=key,
            version=version,
            client_id="",
            client_host="",
            principal=_PRINCIPAL,
            login=Login(),
            body=build(request_schema(key, version), request.asked),
            offered={},
        )
        return request.told(build(response_schema(key, version), await HANDLERS[key](call) or {}))


class FakeCluster(TopicAdminMixin, ConfigAdminMixin, AclAdminMixin, QuotaAdminMixin, GroupAdminMixin):
    """`KafkaCluster` in memory. For one event loop."""

    def __init__(
        self,
        alias: str = "fake",
        *,
        clock: Clock | None = None,
        broker_count: int = 1,
        cluster_id: str | None = None,
        authorizer: bool = True,
    ) -> None:
        """`authorizer` False: ACL calls answer as a cluster without one."""
        self.alias = alias
        self.hooks = Hooks(alias)
        self.kafka = Cluster(node_count=broker_count, clock=clock or SystemClock(), random=SystemRandom())
        self.kafka.cluster_id = cluster_id or self.kafka.cluster_id
        for node in self.kafka.nodes.values():
            node.host, node.port = alias, 9092 + node.node_id
        self.topics = self.kafka.topics
        self.groups = self.kafka.groups.by_id
        self.quotas = self.kafka.quotas.by_entity
        if authorizer:
            self.kafka.authorizer = Authorizer([_PRINCIPAL])
        self._wire = _Wire(alias, self.kafka)
        coordinators = GroupCoordinators(self._wire)
        self._offsets = GroupOffsetsClient(self._wire, coordinators)
        self._descriptions = GroupDescriptionsClient(self._wire, coordinators)

    async def __aenter__(self) -> KafkaCluster:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Keeps everything."""

    def __repr__(self) -> str:
        return f"<FakeCluster {self.alias}>"

    def reader(self, *, read_committed: bool = True) -> ManagedReader:
        return FakeReader(self, read_committed=read_committed)

    def writer(self, *, introduce: Introduce | None = None) -> ManagedWriter:
        return _Writer(self, introduce)

    def member(self, group_id: str, **_options: Any) -> Member:
        raise NotImplementedError("only brokers on the wire have members")

    # ------------------------------------------------------------------------------------- what tests do

    def intercept(self, operation: str, hook: Hook, *, after: bool = False) -> Callable[[], None]:
        """Call `hook` before (or after) every call of a port's method, e.g. "append" or "create_topics".

        Returns what takes the hook away again.
        """
        return self.hooks.add(operation, hook, after=after)

    def take_away(self) -> None:
        """Every operation now raises TransientKafkaError (KAFKA_UNAVAILABLE), until `bring_back`;
        `describe_topics` has it for each topic."""
        self.hooks.available = False
        for partition in self.kafka.partitions():
            partition.wake()

    def bring_back(self) -> None:
        self.hooks.available = True

    def add_topic(
        self, name: str, partition_count: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic at once; one of that name is replaced, with a new topic id and empty logs."""
        replaced = self.kafka.topics.pop(name, None)
        self.kafka.create_topic(name, partition_count=partition_count, replication_factor=1, configs=configs)
        for partition in replaced.partitions if replaced else ():
            partition.wake()

    def topic_id(self, name: str) -> str:
        """As Kafka's tools print it; "" if the broker has none."""
        found = self.kafka.topics[name].topic_id
        return base64.urlsafe_b64encode(found.bytes).decode().rstrip("=") if found.int else ""

    def partition(self, partition: TopicPartition, doing: str = "look") -> Partition:
        """Raises FatalKafkaError TOPIC_UNKNOWN."""
        found = self.kafka.partition(partition.topic, partition.partition)
        if found is None:
            raise self.refusal(ErrorCode.unknown_topic_or_partition, doing)
        return found

    def log(self, partition: TopicPartition, doing: str = "look") -> PartitionLog:
        """The log of a partition's leader. Raises FatalKafkaError TOPIC_UNKNOWN, and TransientKafkaError if
        there is no leader now."""
        found = self.partition(partition, doing)
        if found.leader not in self.kafka.nodes:
            raise self.refusal(ErrorCode.leader_not_available, doing)
        return found.log

    def append(self, partition: TopicPartition, *records: Record) -> None:
        """Append records of one batch as they are, but for their offsets."""
        kind, last = records[0].timestamp_type, records[-1]
        appended_at_ms = last.timestamp_ms if kind is TimestampType.LOG_APPEND_TIME else None
        self._append(partition, records, producer_id=last.producer_id, appended_at_ms=appended_at_ms)

    def append_transaction(
        self, partition: TopicPartition, records: Iterable[Record], outcome: EndMarker | None
    ) -> int:
        """Append records of one transaction, and its marker unless it stays open.

        Returns the transaction's number for `finish_transaction`. The records' own offsets are ignored.
        """
        number = self.kafka.transactions.new_producer_id()
        self._append(partition, records, producer_id=number, transactional=True)
        if outcome is not None:
            self.finish_transaction(partition, number, outcome)
        return number

    def finish_transaction(self, partition: TopicPartition, number: int, outcome: EndMarker) -> None:
        """With the time of the last record: a marker with the time of now would begin a segment."""
        found = self.partition(partition)
        append_marker(found, outcome, number, 0, 0, found.log.batches[-1].header.max_timestamp_ms)

    def _append(self, partition: TopicPartition, records: Iterable[Record], **more: Any) -> None:
        decoded = [
            DecodedRecord(index, each.timestamp_ms, each.key, each.value, _raw(each.headers))
            for index, each in enumerate(records)
        ]
        found = self.partition(partition)
        batch, end, epoch = (
            whole_batch(source_batch(decoded, **more)),
            found.log.end_offset,
            found.leader_epoch,
        )
        found.log.append(stored(batch, base_offset=end, leader_epoch=epoch, append_time_ms=None))
        found.replicate()

    def punch_holes(self, partition: TopicPartition, offsets: Collection[int]) -> None:
        """Remove single records, as compaction does."""
        remove(self.partition(partition), offsets)

    def truncate(self, partition: TopicPartition, end: int) -> None:
        """Lose the log's tail, in whole batches and transactions, as an unclean leader election may: another
        leader continues."""
        found = self.partition(partition)
        first_lost = found.log.batches[found.log.index_of(end) :][:1]
        if first_lost and first_lost[0].header.is_control:
            end -= 1
        self.kafka.lose_tail(found, end)

    def elect(self, partition: TopicPartition) -> None:
        """Have another leader, which has all of the log."""
        found = self.partition(partition)
        self.kafka.elect(found, found.leader)

    def records(self, partition: TopicPartition, *, read_committed: bool = False) -> list[Record]:
        """Every record of a log; unless `read_committed` those of open and aborted transactions, too."""
        log, found = self.log(partition), list[Record]()
        offset = log.start_offset
        while (read := self.read(partition, offset, read_committed=read_committed)).next_offset > offset:
            found += read.records
            offset = read.next_offset
        return found

    def set_group(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int] | None = None,
        *,
        state: str = "EMPTY",
        group_type: str = "classic",
        protocol_type: str | None = None,
        member_count: int = 0,
    ) -> None:
        """Create or change a group; the given offsets (next to read) are added to its own.

        Without a protocol it has that of its type.
        """
        protocol = _PROTOCOLS[group_type] if protocol_type is None else protocol_type
        wish = Wish("", "", "", 0.0, 0.0, protocol, {})
        self.kafka.groups.by_id[group_id] = ClassicGroup(
            group_id,
            self.kafka.random,
            0.0,
            ClassicState[state],
            protocol_type=protocol,
            members={str(number): ClassicMember(str(number), wish) for number in range(member_count)},
            kind=group_type,
        )
        told = {(at.topic, at.partition): Committed(offset, -1, "") for at, offset in (offsets or {}).items()}
        self.kafka.groups.commit(group_id, told)

    @property
    def acls(self) -> MutableSet[AclBinding]:
        return _Acls(self.kafka.authorizer or Authorizer())

    @acls.setter
    def acls(self, bindings: Iterable[AclBinding]) -> None:
        kept = tuple(bindings)
        self.acls.clear()
        for binding in kept:
            self.acls.add(binding)

    # ---------------------------------------------------------------------- what is answered without handlers

    def refusal(self, code: int, doing: str, detail: str = "") -> KafkaError:
        return from_code(code, doing, alias=self.alias, detail=detail)

    def _each(
        self, things: Iterable[Thing], answer: Callable[[Thing], Answer]
    ) -> dict[Thing, Answer | KafkaError]:
        """By thing the answer, or the error that it raises."""
        found: dict[Thing, Answer | KafkaError] = {}
        for thing in things:
            try:
                found[thing] = answer(thing)
            except KafkaError as error:
                found[thing] = error
        return found

    async def cluster_id(self) -> str:
        return self.kafka.cluster_id

    async def _topics(
        self,
        names: Collection[str] | None,
        doing: str,
        silent: Collection[int] = (),
        *,
        slow_seconds: float | None = None,
    ) -> Metadata:
        nodes = self.kafka.nodes.values()
        brokers = {node.node_id: f"{node.host}:{node.port}" for node in nodes}
        topics = [self._metadata(name) for name in (self.kafka.topics if names is None else names)]
        return Metadata(self.kafka.cluster_id, brokers, topics, Replicas())

    def _metadata(self, name: str) -> TopicMetadata:
        topic = self.kafka.topics.get(name)
        if topic is None:
            return TopicMetadata(ErrorCode.unknown_topic_or_partition, name, "", False, 0, 0)
        partitions = topic.partitions
        replicas = len(partitions[0].replicas)
        return TopicMetadata(0, name, self.topic_id(name), topic.is_internal, len(partitions), replicas)

    async def describe_topics(self, names: Collection[str]) -> Mapping[str, TopicDescription | KafkaError]:
        """As with a real cluster, an outage is an error of each topic."""
        try:
            return await self._describe_topics(names)
        except TransientKafkaError as error:
            return dict.fromkeys(names, error)

    @operation
    async def _describe_topics(self, names: Collection[str]) -> Mapping[str, TopicDescription | KafkaError]:
        return await super().describe_topics(names)

    async def outage(self, present: Presence, whole: Mapping[int, str] = NO_BROKERS) -> Outage:
        silent = [number for number, node in self.kafka.nodes.items() if not node.is_up]
        return Outage(brokers={number: present.brokers[number] for number in silent})

    async def _until_seen(self, names: set[str]) -> None:
        """They are, at once."""

    async def list_groups(self) -> Mapping[str, str]:
        groups = self.kafka.groups.by_id.items()
        return {name: group.kind for name, group in groups if group.listed_protocol in LISTED_PROTOCOLS}

    async def list_offsets(
        self, spec: OffsetSpec, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | KafkaError]:
        def answer(partition: TopicPartition) -> int:
            log = self.log(partition, f"list {spec} offsets")
            if spec is OffsetSpec.EARLIEST:
                return log.start_offset
            return log.high_watermark if spec is OffsetSpec.LATEST else log.last_stable_offset

        return self._each(partitions, answer)

    async def log_ends(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, LogEnd | KafkaError]:
        def end(partition: TopicPartition) -> LogEnd:
            log = self.log(partition, "ask for the end of logs")
            return LogEnd(log.high_watermark, log.epoch_at(log.high_watermark))

        return self._each(partitions, end)

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, EpochEnd | KafkaError]:
        doing = "ask for the end of a leader epoch"
        return self._each(epochs, lambda one: EpochEnd(*self.log(one, doing).epoch_end(epochs[one])))

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | KafkaError | None]:
        def first(partition: TopicPartition) -> int | None:
            log = self.log(partition, "look up offsets by time")
            found = find_offset(log, timestamps_ms[partition], log.high_watermark).offset
            return found if found >= 0 else None

        return self._each(timestamps_ms, first)

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        def delete(partition: TopicPartition) -> None:
            log = self.log(partition, "delete records")
            if before[partition] > log.high_watermark:
                raise self.refusal(ErrorCode.offset_out_of_range, "delete records")
            log.delete_before(before[partition])

        return self._each(before, delete)

    def read(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        read_committed: bool = True,
        max_bytes: int = 1 << 20,
        doing: str = "read",
    ) -> FetchedRecords:
        """The result of a fetch now. Raises FatalKafkaError."""
        log = self.log(partition, doing)
        if not log.start_offset <= offset <= log.end_offset:
            raise self.refusal(ErrorCode.offset_out_of_range, doing)
        end = log.last_stable_offset if read_committed else log.high_watermark
        records: list[Record] = []
        next_offset = offset
        for batch, is_visible in _following(log, offset, end, max_bytes, read_committed=read_committed):
            next_offset = batch.header.next_offset
            if is_visible:
                opened = _opened(batch.data)
                records += opened if batch.header.base_offset >= offset else _from(opened, offset)
        return FetchedRecords(
            records=records,
            next_offset=next_offset,
            log_start_offset=log.start_offset,
            high_watermark=end,
        )


for _port in (TopicAdmin, ConfigAdmin, AclAdmin, QuotaAdmin, GroupAdmin, LogAdmin):
    for _name in vars(_port):
        if not _name.startswith("_") and _name != "describe_topics":
            setattr(FakeCluster, _name, operation(getattr(FakeCluster, _name)))


class FakeReader:
    """`LogReader` on a fake cluster."""

    def __init__(self, cluster: FakeCluster, *, read_committed: bool) -> None:
        self._cluster = cluster
        self._read_committed = read_committed
        self._closed = False
        self.hooks = cluster.hooks

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._closed = True

    def batches(self, partition: TopicPartition, offset: int, end: int) -> Iterator[Batch]:
        """Those that it can see, as they are stored."""
        found = _following(
            self._cluster.log(partition), offset, end, 1 << 62, read_committed=self._read_committed
        )
        return (batch.batch for batch, is_visible in found if is_visible)

    @operation
    async def fetch(
        self, partition: TopicPartition, offset: int, *, max_wait_seconds: float, max_bytes: int = 1 << 20
    ) -> FetchedRecords:
        if self._closed:
            raise StateError("the reader is closed", reason="CLIENT_CLOSED")
        doing = f"read {partition} at {offset}"

        def read() -> FetchedRecords:
            self.hooks.check_available("fetch")
            return self._cluster.read(
                partition, offset, read_committed=self._read_committed, max_bytes=max_bytes, doing=doing
            )

        found = self._cluster.partition(partition, doing)
        await calls.wait_until([found], lambda: read().next_offset > offset, max_wait_seconds)
        return read()


class _Writer:
    """`LogWriter` on a fake cluster."""

    def __init__(self, cluster: FakeCluster, introduce: Introduce | None) -> None:
        self._cluster = cluster
        self._introduce = introduce
        self._producer_id = cluster.kafka.transactions.new_producer_id()
        self._closed = False
        self.hooks = cluster.hooks

    async def __aenter__(self) -> ManagedWriter:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._closed = True

    @operation
    async def append(
        self,
        partition: TopicPartition,
        *,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> int:
        if self._closed:
            raise StateError("the writer is closed", reason="CLIENT_CLOSED")
        introduce, self._introduce = self._introduce, None
        if introduce is not None:
            first, first_key, first_value = introduce(self._producer_id)
            try:
                await self.append(first, key=first_key, value=first_value)
            except BaseException:
                self._introduce = introduce
                raise
        cluster, doing = self._cluster, f"append to {partition}"
        found, now_ms = cluster.partition(partition, doing), cluster.kafka.clock.now_ms()
        known = found.log.producers.entries.get(self._producer_id)
        sequence = known.last_sequence + 1 if known is not None else 0
        try:
            raw = tuple((name.encode(), value) for name, value in headers)
            batch = build_batch(
                [NewRecord(key, value, now_ms if timestamp_ms is None else timestamp_ms, raw)]
            )
            data = sealed(batch, Seal(self._producer_id, 0, sequence, transactional=False))
            return append_batch(found, data, now_ms, transactions_v2=True).base_offset
        except AppendError as error:
            raise cluster.refusal(error.code, doing, str(error)) from error
        except UnicodeEncodeError as error:
            detail = "a header name is not UTF-8"
            raise cluster.refusal(ErrorCode.invalid_record, doing, detail) from error


_WORDS: tuple[Any, ...] = (AclResourceType, None, AclPatternType, None, None, AclOperation, AclPermission)
"""Kafka's names of the parts of an ACL; None where a part is a text."""


class _Acls(MutableSet[AclBinding]):
    """Those of an authorizer, by the names of the ports."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._acls = authorizer.acls

    def __contains__(self, binding: object) -> bool:
        return isinstance(binding, AclBinding) and _acl(binding) in self._acls

    def __iter__(self) -> Iterator[AclBinding]:
        return map(_binding, tuple(self._acls))

    def __len__(self) -> int:
        return len(self._acls)

    def add(self, value: AclBinding) -> None:
        self._acls[_acl(value)] = None

    def discard(self, value: AclBinding) -> None:
        self._acls.pop(_acl(value), None)


def _acl(binding: AclBinding) -> Acl:
    told = zip(_WORDS, dataclasses.astuple(binding), strict=True)
    return Acl(*(value if words is None else words[value] for words, value in told))


def _binding(acl: Acl) -> AclBinding:
    told: Iterable[Any] = zip(dataclasses.fields(AclBinding), _WORDS, acl, strict=True)
    return AclBinding(**{each.name: words(value).name if words else value for each, words, value in told})


def _raw(headers: Headers) -> RawHeaders:
    return tuple((name.encode("utf-8", "surrogateescape"), value) for name, value in headers)


def _following(
    log: PartitionLog, offset: int, end: int, max_bytes: int, *, read_committed: bool
) -> Iterator[tuple[StoredBatch, bool]]:
    """The batches up to an end, and whether a reader sees them."""
    aborted = [AbortedTransaction(each[0], each[1]) for each in log.aborted_from(offset)]
    tracker = VisibilityTracker(aborted, read_committed=read_committed)
    for batch in log.following(offset, max_bytes=max_bytes, before=end):
        hidden = batch.header.is_transactional and tracker.see(batch.batch) is not Visibility.VISIBLE
        yield batch, not hidden


def _from(records: Sequence[Record], offset: int) -> list[Record]:
    return [record for record in records if record.offset >= offset]


@functools.lru_cache(maxsize=1 << 14)
def _opened(data: bytes) -> tuple[Record, ...]:
    """The records of one batch: tests read the same ones again and again."""
    fetched = FetchedPartition(TopicPartition("", 0), 0, 1 << 62, -1, 0, (), -1, memoryview(data))
    return tuple(read_records(fetched, 0, read_committed=False, check_crcs=False)[0])
