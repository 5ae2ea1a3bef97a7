"""Connect's predicates: `org.apache.kafka.connect.transforms.predicates`."""

import re
from dataclasses import dataclass, field

from twinlog.batches.bodies import encode_field, has_header, is_tombstone


@dataclass(frozen=True, slots=True)
class HasHeaderKey:
    """True for a record with at least one header of this key."""

    key: bytes
    _written: bytes = field(init=False)
    """The key with its length, as a body has it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_written", encode_field(self.key))

    def holds(self, body: bytes) -> bool:
        return has_header(body, self._written)


@dataclass(frozen=True, slots=True)
class RecordIsTombstone:
    """True for a record whose value is null."""

    def holds(self, body: bytes) -> bool:
        return is_tombstone(body)


@dataclass(frozen=True, slots=True)
class TopicNameMatches:
    """True for the records of a topic whose whole name matches: the name of the copy, or the one that an
    earlier router gave it."""

    pattern: re.Pattern[str]

    def holds_for(self, topic: str) -> bool:
        return self.pattern.fullmatch(topic) is not None


Predicate = HasHeaderKey | RecordIsTombstone | TopicNameMatches
