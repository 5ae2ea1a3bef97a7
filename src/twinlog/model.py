"""The domain's words: flow, topic partition, record. Pure data, shared by every service.

Positions are always the *next* offset to read or write. Only MirrorMaker 2's `mm2-offsets` record differs;
`twinlog.wire.source_offset` converts it.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

ClusterAlias = str


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """One direction of replication: everything selected on `source` is copied to `target`."""

    source: ClusterAlias
    target: ClusterAlias

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"

    @classmethod
    def parse(cls, text: str) -> "Flow":
        """Read `A->B`. Raises ValueError when there is no arrow or an alias is empty."""
        source, arrow, target = text.partition("->")
        if not (arrow and source.strip() and target.strip()):
            # An unquoted A->B: the shell took the rest as the name of a file.
            quote = ", in quotes: a shell keeps `>` for itself" if text.endswith("-") else ""
            raise ValueError(f"{text!r} is not a flow: expected SOURCE->TARGET{quote}")
        return cls(source.strip(), target.strip())


class TopicPartition(NamedTuple):
    """A partition of a topic on the cluster that the context names.

    A NamedTuple, because it is a key in a dozen lookups for every batch and uses the interpreter's own hash
    and comparison.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def parse(cls, text: str) -> "TopicPartition":
        """Read `topic-3`, split at the last dash. Raises ValueError otherwise."""
        topic, dash, number = text.rpartition("-")
        if not (dash and topic and number.isdecimal()):
            raise ValueError(f"{text!r} is not a topic partition: expected TOPIC-NUMBER")
        return cls(topic, int(number))


class TimestampType(StrEnum):
    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record of a log. `None` and `b""` are different keys, values and header values."""

    offset: int
    timestamp_ms: int
    """-1 for a record without one (magic 0)."""
    key: bytes | None
    value: bytes | None
    headers: Headers = field(default=())
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    producer_id: int = field(default=-1, compare=False)
    """The producer of its batch; -1 for one that is not idempotent."""
