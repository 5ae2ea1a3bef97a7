"""What a translation is, and MM2's own rule. Exact translation (`exact`) answers in the same words."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from twinlog.model import TopicPartition


class Verdict(Enum):
    """What is known of a group's translated offset on one partition. The closed list of the API."""

    PRESERVED = "PRESERVED"
    """The same offset: the copy has the source's offsets."""
    BEFORE_START = "BEFORE_START"
    """The log there begins after the offset: at its first record. What lies before is gone there."""
    EXACT = "EXACT"
    """The very record the group reads next, compared on both sides."""
    FLOOR = "FLOOR"
    """MM2's rule: never ahead, so records may be read again."""
    MAPPED = "MAPPED"
    """The same where Spark changes the records: no comparison can say more."""
    UP_TO_DATE = "UP_TO_DATE"
    """The group has read all that has been copied: the offset after the last copied record."""
    NOT_REPLICATED = "NOT_REPLICATED"
    """The flow does not copy the topic."""
    SHARED_COPY = "SHARED_COPY"
    """Another flow writes the copy, too: offsets of one source have no place in it."""
    NO_SYNC = "NO_SYNC"
    """Nothing of the partition has been copied yet, so no offset sync exists."""
    TOO_OLD = "TOO_OLD"
    """The offset lies before everything that is known to have been copied."""
    NOT_READY = "NOT_READY"
    """The first pass over the offset syncs is not done."""
    ACTIVE_ON_TARGET = "ACTIVE_ON_TARGET"
    """Translated, but the group has members on the target, which own its offsets there."""
    SOURCE_UNREADABLE = "SOURCE_UNREADABLE"
    """The source does not let the group's offsets, its logs or the offset syncs be read."""
    TARGET_UNREADABLE = "TARGET_UNREADABLE"
    """The same of the target."""
    PAST_END = "PAST_END"
    """The offset lies past the end of the log: no record can follow it."""


COMPARED = frozenset({Verdict.PRESERVED, Verdict.BEFORE_START, Verdict.EXACT, Verdict.UP_TO_DATE})
"""Verdicts of answers that are certain: records of both logs were compared, or their offsets are equal."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SourcePosition:
    """A group's place in a source partition; `next_offset` is the record it reads next."""

    partition: TopicPartition
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    verdict: Verdict
    downstream_offset: int | None
    """The next offset to read on the target; None when the verdict has none."""
    message: str = ""


class FloorRule(Protocol):
    """A translation that reads no logs: what is left when the logs give nothing."""

    def translate_one(self, position: SourcePosition) -> Translation: ...


class Translator(Protocol):
    """A strategy of translation for one flow."""

    async def translate(self, positions: Collection[SourcePosition]) -> Mapping[SourcePosition, Translation]:
        """One answer for each position; what is wrong with a single one is its verdict, never an error."""
        ...
