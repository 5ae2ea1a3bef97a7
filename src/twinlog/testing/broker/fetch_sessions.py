"""Fetch sessions (KIP-227): a broker remembers what a client reads, and tells only what is new."""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from twinlog.testing.broker.codec import Fields

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
