"""One transactional id and its coordinator: get the producer's identity, add partitions, end the transaction.

In transactions of version 2 (KIP-890), if the cluster has them, brokers themselves add the partitions of
batches, and every end returns the identity for the next one, so that nothing late gets into it. Every call
retries what may heal (the coordinator moving, the previous transaction still ending) until its deadline;
other errors are raised at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeVar

from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.transaction import InitProducerIdRequest

from twinlog import __version__
from twinlog.backoff import backoff_seconds
from twinlog.errors import KafkaError, StateError, TransientKafkaError
from twinlog.kafka.codes import COORDINATOR_MOVED, ErrorCode
from twinlog.kafka.deadline import deadline, pause
from twinlog.kafka.errors import TIMEOUT, from_code, from_reason
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.requests import HandWrittenRequest, SchemaRequest
from twinlog.kafka.raw.leaders import partition_error
from twinlog.kafka.raw.settings import Admit, admit_all
from twinlog.kafka.raw.transactions.wire import (
    EndAnswer,
    ProducerIdentity,
    add_partitions_request,
    describe_request,
    end_request,
)
from twinlog.model import TopicPartition

_SOFTWARE = "twinlog"
"""Brokers show this name in their metrics, with Twinlog's version."""


class BrokerFeatures(NamedTuple):
    """Empty if the broker is too old, or refused."""

    versions: Mapping[int, tuple[int, int]]
    """API key -> oldest and newest version."""
    finalized: Mapping[str, int]
    """Feature -> the level that is in force in the whole cluster; features that are not in force are
    absent."""


_NOTHING = BrokerFeatures({}, {})


def broker_features_request() -> HandWrittenRequest[BrokerFeatures]:
    """ApiVersions; from version 3 on with the features of the cluster (KIP-584). aiokafka uses version 0."""
    software = {"client_software_name": _SOFTWARE, "client_software_version": __version__}
    return SchemaRequest("api_versions", range(4), software, _features)


def _features(answer: Any) -> BrokerFeatures:
    if answer.error_code or not hasattr(answer, "finalized_features"):
        return _NOTHING
    return BrokerFeatures(
        {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys},
        {each.name: each.max_version_level for each in answer.finalized_features},
    )


T = TypeVar("T")

_TRANSACTION = 1
_FEATURE, _VERSION_2 = "transaction.version", 2
_NEEDED_VERSIONS = {0: 12, 26: 5}
"""Produce that adds partitions, and EndTxn that returns an identity: proxies may hide their brokers'
versions."""
_AWAY_SECONDS, _LONGEST_AWAY_SECONDS = 0.05, 1.0
"""Waits while a coordinator is away."""
_BUSY_SECONDS, _LONGEST_BUSY_SECONDS = 0.002, 0.05
"""aiokafka waits 20 ms, Java 20-100; the markers of a small transaction are written in one or two."""


class _Refusal(NamedTuple):
    """The coordinator's error code, which may or may not be worth a retry."""

    code: int


class RefusedPartitionsError(KafkaError):
    """Some partitions cannot be in the transaction; `partitions` has the error of each."""

    def __init__(self, partitions: dict[TopicPartition, KafkaError]) -> None:
        first = next(iter(partitions.values()))
        super().__init__(str(first), reason=first.reason, metadata=first.metadata, code=first.code)
        self.partitions = partitions


class TransactionCoordinator:
    """For one transactional id; for None it only gets identities, from any broker."""

    def __init__(
        self,
        session: DataClientPool,
        transactional_id: str | None,
        *,
        transaction_timeout_seconds: float,
        admit: Admit = admit_all,
    ) -> None:
        self._session = session
        self._admit = admit
        self._admitted: int | None = None
        """The producer id that was admitted last."""
        self._id = transactional_id
        self._transaction_timeout_ms = int(transaction_timeout_seconds * 1000)
        self._node: int | None = None
        self.version_2 = False
        """Whether transactions are of version 2: see `agree`."""

    async def new_identity(self, *, timeout_seconds: float) -> ProducerIdentity:
        """InitProducerId: fences every earlier holder of the id and aborts what it left open.

        When this returns, the id's earlier transactions have ended on every partition. Raises KafkaError.
        """
        request = InitProducerIdRequest(self._id, self._transaction_timeout_ms)

        async def once() -> ProducerIdentity | _Refusal:
            response = await self._send(request)
            if response.error_code:
                return _Refusal(response.error_code)
            return ProducerIdentity(response.producer_id, response.producer_epoch)

        doing = f"initialise the producer {self._name()}"
        return await self._to_use(await self._until_settled(once, doing, timeout_seconds))

    async def _to_use(self, identity: ProducerIdentity) -> ProducerIdentity:
        if identity.producer_id != self._admitted:
            await self._admit(identity.producer_id, self._id or "")
            self._admitted = identity.producer_id
        return identity

    async def known_producer(self, *, timeout_seconds: float) -> int | None:
        """The producer id that the id has now (DescribeTransactions, Kafka 3.0), which fences nobody; None =
        the coordinator does not know the id. Raises KafkaError."""
        request = describe_request(self.transactional_id)

        async def once() -> int | _Refusal | None:
            error_code, producer_id = await self._send(request)
            if error_code == ErrorCode.transactional_id_not_found:
                return None
            return _Refusal(error_code) if error_code else producer_id

        return await self._until_settled(once, f"ask for the producer {self._name()}", timeout_seconds)

    async def agree(self, *, timeout_seconds: float) -> None:
        """Find out whether the cluster has transactions of version 2; they are used from now on. Raises
        KafkaError.

        Called once for each producer: after an upgrade of the cluster the next producer uses them. After a
        downgrade this one fails.
        """
        doing = f"ask for the version of transactions of {self._name()}"

        async def once() -> BrokerFeatures:
            answer: BrokerFeatures = await self._send(broker_features_request())
            return answer

        features = await self._until_settled(once, doing, timeout_seconds)
        self.version_2 = features.finalized.get(_FEATURE, 0) >= _VERSION_2 and all(
            features.versions.get(api_key, (0, -1))[1] >= version
            for api_key, version in _NEEDED_VERSIONS.items()
        )

    async def add_partitions(
        self,
        identity: ProducerIdentity,
        partitions: Collection[TopicPartition],
        *,
        timeout_seconds: float,
        unknown_topic_seconds: float,
    ) -> None:
        """AddPartitionsToTxn. Raises RefusedPartitionsError if single partitions are the cause, else
        KafkaError. An unknown topic is retried for `unknown_topic_seconds`."""
        doing = f"add partitions to the transaction of {self._name()}"
        request = add_partitions_request(self.transactional_id, identity, partitions)
        give_up_unknown_at = asyncio.get_running_loop().time() + unknown_topic_seconds

        async def once() -> _Refusal | None:
            answered: dict[TopicPartition, int] = await self._send(request)
            codes = {
                partition: code
                for partition, code in answered.items()
                if code not in (0, ErrorCode.operation_not_attempted)
            }
            if not codes:
                return None
            for code in codes.values():
                if code == ErrorCode.concurrent_transactions or code in COORDINATOR_MOVED:
                    return _Refusal(code)
            unknown = ErrorCode.unknown_topic_or_partition in codes.values()
            if unknown and asyncio.get_running_loop().time() < give_up_unknown_at:
                return _Refusal(ErrorCode.unknown_topic_or_partition)
            raise RefusedPartitionsError(
                {
                    partition: partition_error(code, partition, doing, alias=self._session.alias)
                    for partition, code in codes.items()
                }
            )

        await self._until_settled(
            once, doing, timeout_seconds, also_retry=frozenset((ErrorCode.unknown_topic_or_partition,))
        )

    async def end(
        self, identity: ProducerIdentity, *, commit: bool, timeout_seconds: float
    ) -> ProducerIdentity:
        """EndTxn; returns the identity for the next transaction. Raises KafkaError; after a transient one the
        outcome is unknown.

        A retry after a lost answer is safe: the coordinator knows the identity whose transaction it ended
        last, and returns the same new one. If the new one is not admitted, the transaction has ended all the
        same.
        """
        request = end_request(self.transactional_id, identity, commit=commit, gives_identity=self.version_2)

        async def once() -> EndAnswer | _Refusal:
            answer: EndAnswer = await self._send(request)
            return _Refusal(answer.error_code) if answer.error_code else answer

        verb = "commit" if commit else "abort"
        doing = f"{verb} the transaction of {self._name()}"
        ended = await self._until_settled(once, doing, timeout_seconds)
        # When the epochs of a producer id are used up, the coordinator returns another id.
        return await self._to_use(ended.identity or identity)

    async def _until_settled(
        self,
        once: Callable[[], Awaitable[T | _Refusal]],
        doing: str,
        timeout_seconds: float,
        *,
        also_retry: frozenset[int] = frozenset(),
    ) -> T:
        """Repeat `once` while it is refused, or fails, in a way that a retry may heal."""
        busy = away = 0
        last: KafkaError | None = None
        try:
            async with deadline(timeout_seconds, doing, alias=self._session.alias):
                while True:
                    try:
                        result = await once()
                    except TransientKafkaError as error:
                        last, self._node = error, None
                    else:
                        if not isinstance(result, _Refusal):
                            return result
                        last = from_code(result.code, doing, alias=self._session.alias)
                        if result.code == ErrorCode.concurrent_transactions:
                            await pause(
                                backoff_seconds(busy, first=_BUSY_SECONDS, longest=_LONGEST_BUSY_SECONDS)
                            )
                            busy += 1
                            continue
                        if result.code in COORDINATOR_MOVED:
                            self._node = None
                        elif result.code not in also_retry:
                            raise last
                    await pause(backoff_seconds(away, first=_AWAY_SECONDS, longest=_LONGEST_AWAY_SECONDS))
                    away += 1
        except TransientKafkaError as error:
            if last is None or error is last:
                raise
            detail = f"{timeout_seconds:g} s, the last attempt: {last.reason}"
            raise from_reason(TIMEOUT, doing, alias=self._session.alias, detail=detail) from last

    async def _send(self, request: Any) -> Any:
        doing = f"reach the coordinator of {self._name()}"
        if self._node is None:
            self._node = await self._find(doing)
        return await self._session.send(self._node, request, doing)

    async def _find(self, doing: str) -> int:
        if self._id is None:
            return await self._session.any_node(doing)
        response = await self._session.send_any(FindCoordinatorRequest(self._id, _TRANSACTION), doing)
        if response.error_code:
            raise from_code(response.error_code, doing, alias=self._session.alias)
        node_id = int(response.coordinator_id)
        await self._session.make_known((node_id,), doing)
        return node_id

    @property
    def transactional_id(self) -> str:
        """Raises StateError if there is none."""
        if self._id is None:
            raise StateError("an idempotent producer has no transactions")
        return self._id

    def _name(self) -> str:
        return self._id or "(idempotent)"


# Fencing: initialise transactional ids so that their former holders can never commit again.


_AT_ONCE = 16


async def fence(
    session: DataClientPool,
    transactional_ids: Collection[str],
    *,
    timeout_seconds: float,
    transaction_timeout_seconds: float,
) -> dict[str, ProducerIdentity | KafkaError]:
    """InitProducerId for every id, without keeping a producer. The result has one entry per id: its new
    identity, or the error.

    An id with an identity is safe: its earlier holders are fenced, and its coordinator has committed or
    aborted what they left open; partitions without a leader may have been left out (`open_transactions`).
    Takes at most `timeout_seconds` per id, 16 ids at a time. `transaction_timeout_seconds` is that of the
    producers with these ids: brokers refuse one above their transaction.max.timeout.ms.
    """
    outcome: dict[str, ProducerIdentity | KafkaError] = {}

    async def one(coordinator: TransactionCoordinator) -> None:
        try:
            found = await coordinator.new_identity(timeout_seconds=timeout_seconds)
        except KafkaError as error:
            outcome[coordinator.transactional_id] = error
        else:
            outcome[coordinator.transactional_id] = found

    await _each(session, transactional_ids, transaction_timeout_seconds, one)
    return outcome


async def known_producers(
    session: DataClientPool, transactional_ids: Collection[str], *, timeout_seconds: float
) -> dict[int, str]:
    """The ids that coordinators know, by the producer id that each has now. A cluster that does not tell
    knows none. Raises KafkaError."""
    found: dict[int, str] = {}

    async def one(coordinator: TransactionCoordinator) -> None:
        try:
            producer_id = await coordinator.known_producer(timeout_seconds=timeout_seconds)
        except KafkaError as error:
            if error.retriable:
                raise
        else:
            if producer_id is not None:
                found[producer_id] = coordinator.transactional_id

    try:
        await _each(session, transactional_ids, timeout_seconds, one)
    except* KafkaError as failures:
        raise failures.exceptions[0] from None
    return found


async def _each(
    session: DataClientPool,
    transactional_ids: Collection[str],
    transaction_timeout_seconds: float,
    do: Callable[[TransactionCoordinator], Awaitable[None]],
) -> None:
    places = asyncio.Semaphore(_AT_ONCE)

    async def one(transactional_id: str) -> None:
        async with places:
            await do(
                TransactionCoordinator(
                    session, transactional_id, transaction_timeout_seconds=transaction_timeout_seconds
                )
            )

    async with asyncio.TaskGroup() as group:
        for transactional_id in transactional_ids:
            group.create_task(one(transactional_id), name=f"ask for {transactional_id}")
