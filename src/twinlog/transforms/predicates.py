"""Connect's predicates: `org.apache.kafka.connect.transforms.predicates`."""

import re
from dataclasses import dataclass

from twinlog.transforms.parts import RecordParts


@dataclass(frozen=True, slots=True)
class HasHeaderKey:
    """True for a record with at least one header of this key."""

    key: bytes

    def holds(self, record: RecordParts) -> bool:
        return record.has_header(self.key)


@dataclass(frozen=True, slots=True)
class RecordIsTombstone:
    """True for a record whose value is null."""

    def holds(self, record: RecordParts) -> bool:
        return record.is_tombstone


@dataclass(frozen=True, slots=True)
class TopicNameMatches:
    """True for a record whose topic matches the whole pattern: the name of the copy, or the one that an
    earlier router gave it."""

    pattern: re.Pattern[str]

    def holds(self, record: RecordParts) -> bool:
        return self.holds_for(record.topic)

    def holds_for(self, topic: str) -> bool:
        return self.pattern.fullmatch(topic) is not None


Predicate = HasHeaderKey | RecordIsTombstone | TopicNameMatches
