"""Brokers, topics, partitions: plain state."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from twinlog.testing.broker.codec import Fields
from twinlog.testing.broker.log import PartitionLog

# Fetch sessions (KIP-227): a broker remembers what a client reads, and tells only what is new.

NO_SESSION = 0
_INITIAL_EPOCH = 0
_FINAL_EPOCH = -1
_HIGHEST_EPOCH = (1 << 31) - 1


class AskedTopic(NamedTuple):
    name: str | None
    topic_id: UUID | None
    """Instead of the name, from version 13 on."""
    partitions: Sequence[Any]
    """As the client asked for them last."""


Key = tuple[str | None, UUID | None, int]


class FetchSession:
    def __init__(self, session_id: int = NO_SESSION) -> None:
        self.session_id = session_id
        self._next_epoch = _INITIAL_EPOCH + 1
        self._partitions: dict[Key, Any] = {}
        self._told: dict[Key, tuple[int, int]] = {}
        """The high watermark and the log start that the client knows."""

    def go_on(self, body: Any) -> ErrorCode:
        """Take the changes of the next request."""
        if body.session_epoch != self._next_epoch:
            return ErrorCode.invalid_fetch_session_epoch
        self._next_epoch = 1 if self._next_epoch == _HIGHEST_EPOCH else self._next_epoch + 1
        self.ask(body.topics)
        for topic in body.forgotten_topics_data:
            for index in topic.partitions:
                self._partitions.pop((*_names(topic), index), None)
                self._told.pop((*_names(topic), index), None)
        return ErrorCode.none

    def ask(self, topics: Iterable[Any]) -> None:
        for topic in topics:
            for each in topic.partitions:
                self._partitions[(*_names(topic), each.partition)] = each

    @property
    def topics(self) -> list[AskedTopic]:
        by_topic: dict[tuple[str | None, UUID | None], list[Any]] = {}
        for (name, topic_id, _), asked in self._partitions.items():
            by_topic.setdefault((name, topic_id), []).append(asked)
        return [AskedTopic(*names, partitions) for names, partitions in by_topic.items()]

    def news(self, responses: Iterable[Fields], *, is_first: bool) -> list[Fields]:
        """What the client does not know yet: everything in the first answer of a session."""
        told: list[Fields] = []
        for topic in responses:
            names = topic.get("topic"), topic.get("topic_id")
            parts = [part for part in topic["partitions"] if self._is_news(names, part) or is_first]
            if parts:
                told.append({**topic, "partitions": parts})
        return told

    def _is_news(self, names: tuple[str | None, UUID | None], part: Mapping[str, Any]) -> bool:
        key = (*names, part["partition_index"])
        if part["error_code"]:
            self._told.pop(key, None)
            return True
        known, now = self._told.get(key), (part["high_watermark"], part["log_start_offset"])
        self._told[key] = now
        return bool(part["records"]) or known != now or part["preferred_read_replica"] >= 0


class FetchSessions:
    """Of one broker."""

    def __init__(self) -> None:
        self._by_id: dict[int, FetchSession] = {}

    def of(self, body: Any, random: Random) -> tuple[FetchSession, ErrorCode, bool]:
        """The session of a request, whether that is an error, and whether the answer tells everything."""
        session_id = getattr(body, "session_id", NO_SESSION)
        epoch = getattr(body, "session_epoch", _FINAL_EPOCH)
        if epoch in (_INITIAL_EPOCH, _FINAL_EPOCH):
            self._by_id.pop(session_id, None)
            session = FetchSession()
            if epoch == _INITIAL_EPOCH and body.topics:
                session = FetchSession(random.randrange(1, 1 << 31))
                self._by_id[session.session_id] = session
            session.ask(body.topics)
            return session, ErrorCode.none, True
        known = self._by_id.get(session_id)
        if known is None:
            return FetchSession(), ErrorCode.fetch_session_id_not_found, False
        error = known.go_on(body)
        if not known.topics:
            del self._by_id[session_id]
        return known, error, False


def _names(topic: Any) -> tuple[str | None, UUID | None]:
    return getattr(topic, "topic", None), getattr(topic, "topic_id", None)


GROUP_COORDINATORS = "__consumer_offsets"
TRANSACTION_COORDINATORS = "__transaction_state"


@dataclass(slots=True, eq=False)
class Node:
    """One broker."""

    node_id: int
    host: str = ""
    port: int = 0
    rack: str | None = None
    is_up: bool = True
    clock_skew_ms: int = 0
    """How far this broker's wall clock is ahead."""
    fetch_sessions: FetchSessions = field(default_factory=FetchSessions)


@dataclass(slots=True, eq=False)
class Partition:
    """A partition with a log on each of its replicas."""

    topic: str
    index: int
    replicas: list[int]
    logs: dict[int, PartitionLog]
    leader: int
    leader_epoch: int = 0
    isr: list[int] = field(default_factory=list)
    lagging: set[int] = field(default_factory=set)
    """Replicas that copy nothing, by fault."""
    waiting: dict[asyncio.Future[None], None] = field(default_factory=dict)
    """Who waits until something becomes readable; in order."""

    @property
    def log(self) -> PartitionLog:
        """The leader's log; without a leader that of the replica that led last."""
        return self.logs[self.leader if self.leader >= 0 else self.isr[0]]

    @property
    def high_watermark(self) -> int:
        """What each in-sync replica has."""
        return self.log.high_watermark

    def replicate(self) -> None:
        """Let the followers copy what they lack, then move the high watermark."""
        log = self.log
        for node_id in self.replicas:
            if node_id != self.leader and node_id in self.isr and node_id not in self.lagging:
                self.logs[node_id].follow(log)
        log.advance_high_watermark(min(self.logs[node_id].end_offset for node_id in self.isr))
        for node_id in self.isr:
            if node_id != self.leader:
                self.logs[node_id].advance_high_watermark(log.high_watermark)
        self.wake()

    def retain(self, now_ms: int) -> None:
        """Let the leader remove what is too old; the followers remove it with their next copy."""
        start = self.log.start_offset
        self.log.retain(now_ms)
        if self.log.start_offset > start:
            self.replicate()

    def synchronize(self, live: Collection[int]) -> None:
        """Let every live replica catch up with the leader and be in sync, but for those that copy nothing."""
        for node_id in self.replicas:
            if node_id != self.leader and node_id in live and node_id not in self.lagging:
                self.logs[node_id].follow(self.log)
                if node_id not in self.isr:
                    self.isr.append(node_id)
        self.replicate()

    def wake(self) -> None:
        """Let everyone who waits look again."""
        waiting, self.waiting = self.waiting, {}
        for each in waiting:
            if not each.done():
                each.set_result(None)


@dataclass(slots=True, eq=False)
class Topic:
    name: str
    topic_id: UUID
    partitions: list[Partition]
    configs: dict[str, str]
    """The topic's own configs."""

    @property
    def is_internal(self) -> bool:
        return self.name in (GROUP_COORDINATORS, TRANSACTION_COORDINATORS)
