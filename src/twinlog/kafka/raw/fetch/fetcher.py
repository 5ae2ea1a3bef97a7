"""Fetches batches as bytes from the leaders (or nearest replicas) of many partitions at once.

A broker without data answers late (long poll), so each request has its own connection, and answers are
collected as they arrive: partitions of a quiet broker never delay those of a busy one. A broker that
throttles its client (KIP-219) has no data for now, and is not asked before the throttle ends. Positions
belong to the caller; this module never moves, skips or resets one.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from types import MappingProxyType
from typing import Self

from twinlog.errors import KafkaError
from twinlog.kafka.clients import FetchOptions
from twinlog.kafka.codes import LEADER_MOVED, ErrorCode
from twinlog.kafka.errors import ANSWER_TOO_LARGE, TIMEOUT, from_code
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.connection import DataClient, request_timeout_ms
from twinlog.kafka.raw.fetch.reader import FetchAnswers
from twinlog.kafka.raw.fetch.results import FetchFailure, FetchSizes
from twinlog.kafka.raw.fetch.wire import FETCH, FetchedPartition, FetchPart, FetchResponse, fetch_request
from twinlog.kafka.raw.leaders import about, again, leader_of, no_leader, refresh_metadata
from twinlog.kafka.raw.owned_tasks import OwnedTasks
from twinlog.kafka.raw.settings import InFlightWindow
from twinlog.model import TopicPartition

_REQUESTS_PER_BROKER = 4
"""More than one, so that a partition whose data is being copied need not wait for the long poll of others."""
_BRIEF_WAIT_MS = 250
"""How long a request whose end is awaited may wait for data: the last one that a broker may have (a partition
that is not requested yet needs its place), and one of partitions with unknown bounds."""
_FEW_PARTITIONS = 32
"""This many are requested together whatever they bring: each costs about 10 us in an answer."""
_LEAST_WINDOW_BYTES = 256 << 10
_SLOW_SECONDS = 5.0
"""A full answer that took longer is too large for the way from its broker."""
_LONG_THROTTLE_SECONDS = 1.0
_TIMER_MARGIN_SECONDS = 0.001
"""A timer may fire slightly early, when the broker may not be asked yet."""


_AS_OPTIONS_SAY = FetchSizes()


def longest_wait_ms(timeout_seconds: float) -> int:
    """How long a broker without data may be silent, in a session with this time-out: half of a request's
    time-out (`request_timeout_ms`), or quiet connections would count as dead."""
    return request_timeout_ms(timeout_seconds) // 2


class RawFetcher:
    """Fetches with a session of the source. Use it in one task, with `async with`."""

    def __init__(
        self,
        session: DataClientPool,
        options: FetchOptions,
        *,
        topic_ids: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`topic_ids` belongs to the caller and is looked up for each request. If a topic has an id, only
        that topic is read: TOPIC_CHANGED once it was deleted and created again (brokers of Kafka 3.1 and
        newer)."""
        self._session = session
        self._options = options
        self._topic_ids = topic_ids
        self._longest_wait_ms = min(options.max_wait_ms, longest_wait_ms(session.timeout_seconds))
        self.answers = FetchAnswers(session.alias)
        self._arrived = asyncio.Event()
        self._interrupted = False
        self.requests_in_flight: dict[int, int] = {}
        self._windows: dict[int, InFlightWindow] = {}
        self._tasks = OwnedTasks("a fetcher", self._failed)
        self._failure: Exception | None = None
        self._children: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    async def __aenter__(self) -> Self:
        await self._tasks.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """End every running request."""
        for child in self._children:
            child.cancel()
        await self._tasks.close()

    def _failed(self, error: Exception) -> None:
        self._failure = error
        self._arrived.set()

    def is_asked(self, partition: TopicPartition) -> bool:
        """Its fetch is in flight, or was answered since the last poll: leaving it out of the next one would
        discard the answer."""
        return self.answers.is_asked(partition)

    async def request(
        self, positions: Mapping[TopicPartition, int], sizes: FetchSizes = _AS_OPTIONS_SAY
    ) -> None:
        """Start fetching what is not in flight, and return without waiting for data.

        Call it with the next positions before sending the present data, so that both happen at the same time.
        Raises KafkaError when no broker can be reached.
        """
        wanted = self.answers.missing(positions)
        if not wanted:
            return
        client = await self._session.client("fetch")
        by_place: dict[tuple[int, bool], list[TopicPartition]] = {}
        leaderless: list[FetchPart] = []
        for partition in wanted:
            place = self.answers.place_for(client, partition)
            if place is None:
                leaderless.append(FetchPart(partition, positions[partition]))
            elif self._may_be_asked(place[0]):
                by_place.setdefault(place, []).append(partition)
        if leaderless:
            self.answers.ask(leaderless)
            self._spawn(self._find_leaders(client, leaderless), "find leaders")
        for gone in [node for node in self._windows if client.cluster.broker_metadata(node) is None]:
            del self._windows[gone]
        for node, _ in by_place:
            self._window(node)  # Each gets its share of the total.
        for place, partitions in by_place.items():
            for together in self.grouped(place[0], partitions):
                if self.requests_in_flight.get(place[0], 0) < _REQUESTS_PER_BROKER:
                    self._start(place, together, positions, sizes)

    def _may_be_asked(self, node: int) -> bool:
        return (
            self.requests_in_flight.get(node, 0) < _REQUESTS_PER_BROKER
            and self._session.throttled_seconds(node, FETCH) <= 0
        )

    def _start(
        self,
        place: tuple[int, bool],
        partitions: list[TopicPartition],
        positions: Mapping[TopicPartition, int],
        sizes: FetchSizes,
    ) -> None:
        # The least recently served come first, because the broker fills the answer in this order.
        partitions.sort(key=lambda partition: self.answers.standing(partition).served_at)
        parts = [
            FetchPart(partition, positions[partition], self._most_bytes(partition, sizes))
            for partition in partitions
        ]
        self.answers.ask(parts)
        node, _ = place
        others = self.requests_in_flight.get(node, 0)
        self.requests_in_flight[node] = others + 1
        max_wait_ms = self.wait_ms(partitions, others=others)
        self._spawn(self._fetch(place, parts, sizes.max_bytes, max_wait_ms), f"fetch from {node}")

    def wait_ms(self, partitions: list[TopicPartition], *, others: int) -> int:
        """How long a request may wait at a broker that already has `others` of ours."""
        is_urgent = others >= _REQUESTS_PER_BROKER - 1 or any(
            not self.answers.standing(partition).has_answered for partition in partitions
        )
        return min(self._longest_wait_ms, _BRIEF_WAIT_MS) if is_urgent else self._longest_wait_ms

    def grouped(self, node: int, partitions: list[TopicPartition]) -> list[list[TopicPartition]]:
        """Put busy partitions into a separate request; otherwise each of their answers would also name all
        the quiet ones."""
        groups: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            groups.setdefault(self.answers.standing(partition).group, []).append(partition)
        if groups.keys() != {0}:
            # The newest first; otherwise those that wait long would keep all places, and the search would not
            # end.
            return [groups[number] for number in sorted(groups, reverse=True)]
        busy = [partition for partition in partitions if self.answers.standing(partition).is_busy]
        is_room_for_two = self.requests_in_flight.get(node, 0) <= _REQUESTS_PER_BROKER - 2
        if (
            len(partitions) <= _FEW_PARTITIONS
            or not busy
            or len(busy) == len(partitions)
            or not is_room_for_two
        ):
            return [partitions]
        return [
            busy,
            [partition for partition in partitions if not self.answers.standing(partition).is_busy],
        ]

    async def poll(
        self,
        positions: Mapping[TopicPartition, int],
        *,
        max_wait_seconds: float,
        sizes: FetchSizes = _AS_OPTIONS_SAY,
    ) -> dict[TopicPartition, FetchedPartition | FetchFailure]:
        """Fetch from these positions; return as soon as any broker has answered, at most after the wait.

        The result has one entry per answered partition, also for an empty answer; other fetches continue, and
        their answers come with a later call. An answer for a position that is no longer wanted is discarded.
        A partition that is left out is not fetched (paused). Raises KafkaError when no broker can be reached.
        """
        give_up_at = self._loop.time() + max_wait_seconds
        while True:
            self._arrived.clear()
            if self._failure is not None:
                # A bug is raised in the task that fetches, not in the one that opened this.
                raise self._failure
            await self.request(positions, sizes)
            answers = self.answers.collect(positions)
            left = give_up_at - self._loop.time()
            if answers or left <= 0 or self._interrupted:
                self._interrupted = False
                return answers
            try:
                async with asyncio.timeout(left):
                    await self._arrived.wait()
            except TimeoutError:
                return {}

    async def pause(self, seconds: float) -> None:
        """Nothing is wanted: wait this long, or until an answer or `interrupt`.

        Discards all answers, like a poll, because the log may be another one by the time they are wanted.
        """
        self.answers.discard()
        self._arrived.clear()
        if not self._interrupted:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._arrived.wait()
        self._interrupted = False

    def interrupt(self) -> None:
        """Make the `poll` or `pause` that waits now, or the next one, return at once: positions have
        changed."""
        self._interrupted = True
        self._arrived.set()

    # -------------------------------------------------------------------------------------- fetching

    async def _fetch(
        self, place: tuple[int, bool], parts: list[FetchPart], max_bytes: int | None, max_wait_ms: int
    ) -> None:
        options = self._options
        node, may_name_replica = place
        window = self._window(node)
        most = min(window.size_bytes, self._share(options.max_bytes if max_bytes is None else max_bytes))
        request = fetch_request(
            parts,
            max_wait_ms=max_wait_ms,
            min_bytes=options.min_bytes,
            max_bytes=most,
            max_partition_bytes=min(options.max_partition_bytes, most),
            read_committed=options.read_committed,
            rack=options.client_rack if may_name_replica else "",
            topic_ids=self._topic_ids,
        )
        offsets = {part.partition: part.offset for part in parts}
        began = self._loop.time()
        try:
            response: FetchResponse = await self._session.send(node, request, f"fetch from broker {node}")
            if response.error_code:
                raise from_code(response.error_code, "fetch", alias=self._session.alias)
            moved = False
            for answer in response.answers:
                offset = offsets.pop(answer.partition, None)
                if offset is not None:
                    moved |= answer.error_code in LEADER_MOVED
                    self.answers.take(answer, offset, node)
            received = sum(len(answer.records) for answer in response.answers)
            throttled_seconds = self._session.throttled_seconds(node, FETCH)
            if throttled_seconds > _LONG_THROTTLE_SECONDS:
                window.shrink(most, began=began, now=self._loop.time())
            elif received * 2 >= most:
                window.passed(most, began=began, now=self._loop.time())
            if throttled_seconds > 0:
                self._loop.call_later(throttled_seconds + _TIMER_MARGIN_SECONDS, self._arrived.set)
            elif offsets and not response.throttle_ms:
                raise from_code(
                    ErrorCode.leader_not_available, "fetch", alias=self._session.alias, detail="no answer"
                )
            if moved:
                with contextlib.suppress(KafkaError):
                    await refresh_metadata(self._session, await self._session.client("fetch"))
        except KafkaError as error:
            if error.reason == TIMEOUT.name:
                window.shrink(most, began=began, now=self._loop.time())
            self._request_failed(node, offsets, error)
        finally:
            self.requests_in_flight[node] -= 1
            self._over(parts)

    def _request_failed(self, node: int, offsets: Mapping[TopicPartition, int], error: KafkaError) -> None:
        """Partitions without an answer, each with the requested position."""
        if error.reason == ANSWER_TOO_LARGE.name and len(offsets) > 1:
            self.answers.ask_apart(list(offsets))
            return
        for partition, offset in offsets.items():
            self.answers.avoid_replica(partition, node)
            self.answers.fail(partition, offset, about(partition, again(error)))

    def _window(self, node: int) -> InFlightWindow:
        window = self._windows.get(node)
        if window is None:
            window = self._windows[node] = InFlightWindow(
                most_bytes=self._options.max_bytes,
                least_bytes=_LEAST_WINDOW_BYTES,
                slow_seconds=_SLOW_SECONDS,
            )
        return window

    def _share(self, max_bytes: int) -> int:
        """The size limit of one request. All brokers together stay below one limit, however many they are."""
        share = max_bytes // max(1, len(self._windows))
        return min(max_bytes, max(share, _LEAST_WINDOW_BYTES))

    def _most_bytes(self, partition: TopicPartition, sizes: FetchSizes) -> int | None:
        limit = sizes.partition_bytes.get(partition.topic)
        return None if limit is None else min(limit, self._options.max_partition_bytes)

    # -------------------------------------------------------------------------------------- leaders

    async def _find_leaders(self, client: DataClient, parts: list[FetchPart]) -> None:
        """Refresh the metadata; partitions without a leader after that fail."""
        try:
            await refresh_metadata(self._session, client, {part.partition.topic for part in parts})
            for partition, offset, _ in parts:
                if leader_of(client, partition) is None:
                    self.answers.fail(partition, offset, no_leader(self._session, client, partition))
        except KafkaError as error:
            for partition, offset, _ in parts:
                self.answers.fail(partition, offset, about(partition, again(error)))
        finally:
            self._over(parts)

    def _over(self, parts: list[FetchPart]) -> None:
        self.answers.no_longer_asked(parts)
        self._arrived.set()

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        child = self._tasks.create_task(work, name=name)
        self._children.add(child)
        child.add_done_callback(self._children.discard)
