"""Fills offsets of copies by abort markers that are sent to the partition's leader (docs/adr/0014).

Invariant: a request carries the numbers that belong to the end of the log, where the hole begins. Of all
requests with the same numbers the leader carries out one (`marker_numbers`). So a late request has no effect,
and two owners never fill a hole twice.

Whether the target allows writing markers at its leaders.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import structlog

from twinlog.errors import FatalKafkaError, KafkaError, StateError, TransientKafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.deadline import deadline
from twinlog.kafka.raw import (
    BatchReader,
    DataClientPool,
    ProducerIdentity,
    ProducerSettings,
    TransactionCoordinator,
    epoch_ends,
)
from twinlog.kafka.raw.leaders import about, answered, leader_of, not_told, partition_error, refresh_metadata
from twinlog.kafka.raw.lookups import ProducerStates, log_ends, producer_states
from twinlog.kafka.raw.transactions.wire import AbortMarker, write_markers
from twinlog.model import TopicPartition
from twinlog.policy.expected_offsets import MOST_AT_LEADER
from twinlog_source.preserved.marker_numbers import MarkerState, first_number, following_numbers
from twinlog_source.preserved.own_batches import is_marker_at

# Finds the leaders of partitions with holes.

DOING = "fill offsets"

Holes = Mapping[TopicPartition, tuple[int, int]]
"""First offset and count, by partition."""
Ended = Callable[[TopicPartition, bool], None]
"""Called for a partition when the attempt has ended there, with whether its hole is filled for certain."""
LeftOut = Callable[[TopicPartition, KafkaError], None]
"""Called for a partition that cannot be filled now, for instance without a leader; the others do not wait for
it."""
More = Callable[[], Holes]
"""Returns the holes that have to be filled since the last call, so that they do not wait for longer ones."""


def nothing_more() -> Holes:
    return {}


class HoleLeaders:
    """A leader that did not answer is looked up again before the next hole."""

    def __init__(self, session: DataClientPool) -> None:
        self._session = session
        self._doubtful: set[TopicPartition] = set()

    def doubt(self, partitions: Iterable[TopicPartition]) -> None:
        """The leaders of these partitions did not answer."""
        self._doubtful.update(partitions)

    async def led(self, holes: Holes, left_out: LeftOut) -> dict[TopicPartition, tuple[int, int]]:
        """The holes that have a leader; the others are passed to `left_out`. Raises KafkaError."""
        client = await self._session.client(DOING)
        asked = {each for each in holes if each in self._doubtful or leader_of(client, each) is None}
        if asked:
            await refresh_metadata(self._session, client, {each.topic for each in asked})
        absent = {each for each in asked if leader_of(client, each) is None}
        self._doubtful -= asked - absent
        for partition in absent:
            left_out(partition, self.absent(partition, DOING))
        return {partition: hole for partition, hole in holes.items() if partition not in absent}

    def absent(self, partition: TopicPartition, doing: str) -> KafkaError:
        return partition_error(ErrorCode.leader_not_available, partition, doing, alias=self._session.alias)


def _state_of(producers: ProducerStates, producer_id: int) -> MarkerState:
    known = producers.get(producer_id)
    return (
        MarkerState() if known is None else MarkerState(known.producer_epoch, max(known.coordinator_epoch, 0))
    )


_NO_PARTITION = 2**31 - 1
_TRIES = 3
_SECONDS = 5.0

log = structlog.get_logger(__name__)


async def may_write_markers(session: DataClientPool, known_topic: str) -> bool:
    """Ask by sending a marker for a partition that does not exist: brokers check the right first, and write
    nothing. Also False if the request is never answered although the brokers are up, because a proxy may drop
    unknown requests.

    Raises KafkaError when no broker answers at all.
    """
    doing = "ask whether markers may be written"
    nowhere = TopicPartition(known_topic, _NO_PARTITION)
    for _ in range(_TRIES):
        client = await session.client(doing)
        await refresh_metadata(session, client, {known_topic})
        node = await session.any_node(doing)
        try:
            async with deadline(_SECONDS, doing, alias=session.alias):
                answers = await session.send(node, write_markers([AbortMarker(nowhere, 0, 0, 0)]), doing)
        except TransientKafkaError as error:
            log.info("markers_not_answered", cluster=session.alias, error=str(error))
            continue
        except FatalKafkaError:
            return False  # The brokers do not know the request.
        code: int | None = answers.get((nowhere, 0))
        return code == ErrorCode.unknown_topic_or_partition
    return False


_LEADER_SECONDS = 10.0
"""How long a leader may take to answer; the holes of other leaders wait meanwhile."""
_BEATEN = frozenset((ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced))
"""Another request wrote a marker after the numbers were read."""


class LeaderFiller:
    """Uses one identity of the flow's marker id at a time; no other filler ever has the same identity."""

    def __init__(
        self,
        session: DataClientPool,
        marker_id: str,
        settings: ProducerSettings,
        *,
        reads: DataClientPool,
        known_topic: str,
    ) -> None:
        """`reads` may read the copies; `known_topic` is a topic that exists on the target."""
        self._session = session
        self._reader = BatchReader(reads, read_committed=False)
        self._settings = settings
        self._known_topic = known_topic
        self._coordinator = TransactionCoordinator(
            session,
            marker_id,
            transaction_timeout_seconds=settings.transaction_timeout_seconds,
            admit=settings.admit,
        )
        self._is_allowed: bool | None = None
        self._is_withdrawn = False
        """It was allowed when the task began, and no longer is."""
        self._identity: ProducerIdentity | None = None
        self._reads = reads
        self._states: dict[TopicPartition, MarkerState] = {}
        """The numbers of the newest marker in each log, as of its end (docs/adr/0014). They are read once for
        each log; afterwards they follow from our own markers. If anything else is written in between, the
        leader refuses our next marker."""
        self._leaders = HoleLeaders(session)

    @property
    def is_open(self) -> bool:
        return self._is_allowed is False or self._is_withdrawn or self._identity is not None

    @property
    def is_allowed(self) -> bool:
        """Whether it was allowed when the task began."""
        return bool(self._is_allowed)

    async def open(self) -> None:
        """Check the right once, then get an identity that is newer than all before. Raises KafkaError."""
        if self._is_allowed is None:
            is_allowed = await may_write_markers(self._session, self._known_topic)
            try:
                self._identity = await self._new_identity() if is_allowed else None
            except FatalKafkaError as error:
                log.warning("markers_not_used", cluster=self._session.alias, error=str(error))
            self._is_allowed = self._identity is not None
        elif self._is_allowed:
            self._states.clear()
            try:
                self._identity = await self._new_identity()
            except FatalKafkaError as error:
                self._withdraw(error)

    def _withdraw(self, error: KafkaError) -> None:
        log.warning("markers_withdrawn", cluster=self._session.alias, error=str(error))
        self._is_withdrawn = True

    async def _new_identity(self) -> ProducerIdentity:
        return await self._coordinator.new_identity(timeout_seconds=self._settings.delivery_timeout_seconds)

    async def fill(
        self, holes: Holes, ended: Ended, left_out: LeftOut
    ) -> dict[TopicPartition, tuple[int, int]]:
        """As `Filler.fill`; returns the rest of the holes, for transactions."""
        if not self._is_allowed or self._is_withdrawn:
            return dict(holes)
        identity = self._identity
        if identity is None:
            raise StateError("the filler has no identity: open it")
        led = await self._leaders.led(holes, left_out)
        try:
            at_end = await self._at_end(led, identity.producer_id, ended, left_out)
            for partition in at_end:
                if self._states[partition].producer_epoch > identity.producer_epoch:
                    raise self._overtaken(partition)
            return await self._fill_all(at_end, identity, ended, left_out)
        except BaseException:
            # The request may be carried out late, so the next one has to exclude it.
            self._identity = None
            raise

    async def _at_end(
        self, holes: Holes, producer_id: int, ended: Ended, left_out: LeftOut
    ) -> dict[TopicPartition, tuple[int, int]]:
        """The holes that begin at the end of their log, for which the numbers are known now; the others are
        reported. Raises KafkaError when no broker can be reached."""
        asked = [partition for partition in holes if partition not in self._states]
        if not asked:
            return dict(holes)
        told: set[TopicPartition] = set()

        def refused(partition: TopicPartition, error: KafkaError) -> None:
            told.add(partition)
            left_out(partition, error)

        # Read the numbers between two reads of the end: if both ends are equal, nothing was written
        # meanwhile.
        seconds = _LEADER_SECONDS
        ends = answered(await log_ends(self._reads, asked, timeout_seconds=seconds), refused)
        known = answered(await producer_states(self._reads, ends, timeout_seconds=seconds), refused)
        epochs = {partition: ends[partition].leader_epoch for partition in known}
        leader_ends = answered(await epoch_ends(self._reads, epochs, timeout_seconds=seconds), refused)
        for partition, leader_end in leader_ends.items():
            if holes[partition][0] == ends[partition].offset == leader_end.end_offset:
                self._states[partition] = _state_of(known[partition], producer_id)
            else:
                told.add(partition)
                ended(partition, False)
        return {partition: hole for partition, hole in holes.items() if partition not in told}

    def _overtaken(self, partition: TopicPartition) -> KafkaError:
        detail = "another task has filled offsets there since this one got its identity"
        code = ErrorCode.concurrent_transactions
        return partition_error(code, partition, DOING, alias=self._session.alias, detail=detail)

    async def _fill_all(
        self, holes: Holes, identity: ProducerIdentity, ended: Ended, left_out: LeftOut
    ) -> dict[TopicPartition, tuple[int, int]]:
        client = await self._session.client(DOING)
        by_node: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
        for partition, hole in holes.items():
            leader = leader_of(client, partition)
            if leader is None:
                left_out(partition, self._leaders.absent(partition, DOING))
            else:
                by_node.setdefault(leader, {})[partition] = hole
        rest: dict[TopicPartition, tuple[int, int]] = {}
        failures: list[KafkaError] = []

        async def fill_at(node: int, led: Holes) -> None:
            try:
                rest.update(await self._fill_at(node, led, identity, ended, left_out))
            except KafkaError as error:
                self._leaders.doubt(led)
                failures.append(error)

        async with asyncio.TaskGroup() as tasks:
            for node, led in by_node.items():
                tasks.create_task(fill_at(node, led), name=f"fill offsets at broker {node}")
        if failures:
            raise failures[0]
        return rest

    async def _fill_at(
        self, node: int, holes: Holes, identity: ProducerIdentity, ended: Ended, left_out: LeftOut
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Fill the holes of one leader. Raises KafkaError when an answer is lost."""
        firsts: dict[TopicPartition, Sequence[int]] = {}
        rest: dict[TopicPartition, tuple[int, int]] = {}
        for partition, hole in holes.items():
            state = self._states[partition]
            if state.producer_epoch < identity.producer_epoch:
                number = first_number(state, identity.producer_epoch)
                if number is None:
                    rest[partition] = hole
                else:
                    firsts[partition] = (number,)
        refused = await self._write(node, identity, firsts)
        following: dict[TopicPartition, Sequence[int]] = {}
        for partition, (first, count) in holes.items():
            if partition in refused or partition in rest:
                continue
            begun = int(partition in firsts)
            numbers = following_numbers(self._states[partition], count - begun)
            # Decide by the whole length of the hole, because that decided what its consumers see.
            if numbers is None or count > MOST_AT_LEADER:
                rest[partition] = first + begun, count - begun
            else:
                following[partition] = numbers
        for group in _groups(following):
            refused |= await self._write(node, identity, {each: following[each] for each in group})
        for partition, code in refused.items():
            self._refuse(partition, code, ended, left_out)
        async with asyncio.TaskGroup() as tasks:
            for partition in following.keys() - refused.keys():
                first, count = holes[partition]
                look = self._look(partition, first + count - 1, identity.producer_id, ended, left_out)
                tasks.create_task(look, name=f"look for the marker at {partition}")
        return rest

    async def _write(
        self, node: int, identity: ProducerIdentity, numbers: Mapping[TopicPartition, Sequence[int]]
    ) -> dict[TopicPartition, int | None]:
        """Return the error codes of what was refused, all or in part. Raises KafkaError when the answer is
        lost."""
        written = {partition: each for partition, each in numbers.items() if each}
        if not written:
            return {}
        markers = [
            AbortMarker(partition, *identity, number)
            for partition, each in written.items()
            for number in each
        ]
        async with deadline(_LEADER_SECONDS, DOING, alias=self._session.alias):
            answers = await self._session.send(node, write_markers(markers), DOING)
        codes = {partition: answers.get((partition, identity.producer_id)) for partition in written}
        for partition, each in written.items():
            self._states[partition] = MarkerState(identity.producer_epoch, each[-1])
        return {partition: code for partition, code in codes.items() if code != ErrorCode.none}

    def _refuse(self, partition: TopicPartition, code: int | None, ended: Ended, left_out: LeftOut) -> None:
        """Read the end of the log to learn what was written."""
        self._states.pop(partition, None)
        if code in _BEATEN:
            ended(partition, False)
        elif code is None:
            left_out(partition, not_told(partition, DOING, alias=self._session.alias))
        else:
            self._leaders.doubt([partition])
            error = partition_error(code, partition, DOING, alias=self._session.alias)
            if code == ErrorCode.cluster_authorization_failed:
                self._withdraw(error)
            left_out(partition, error)

    async def _look(
        self, partition: TopicPartition, last: int, producer_id: int, ended: Ended, left_out: LeftOut
    ) -> None:
        """The answer contains neither the markers' offsets nor whether all were written. So check that the
        log ends with one at `last`: then nothing else is in the hole."""
        try:
            async with deadline(_LEADER_SECONDS, DOING, alias=self._session.alias) as limit:
                fetched = await self._reader.fetch(partition, last, max_bytes=1, limit=limit)
        except KafkaError as error:
            self._states.pop(partition, None)
            left_out(partition, about(partition, error))
            return
        header = fetched.batches[0].header if fetched.batches else None
        is_filled = (
            header is not None and fetched.end_offset == last + 1 and is_marker_at(header, last, producer_id)
        )
        if not is_filled:
            self._states.pop(partition, None)
        ended(partition, is_filled)


def _groups(numbers: Mapping[TopicPartition, Sequence[int]]) -> Iterator[Iterable[TopicPartition]]:
    """Groups of partitions whose markers fit into one request."""
    group: list[TopicPartition] = []
    size = 0
    for partition, each in numbers.items():
        if group and size + len(each) > MOST_AT_LEADER:
            yield group
            group, size = [], 0
        group.append(partition)
        size += len(each)
    if group:
        yield group
