"""The transforms of a flow, in the order in which its file names them.

Invariant: a chain that is bound to a topic gives each record the same outcome as the chain applied step by
step; binding only decides early what depends on the topic alone. So a chain that merely renames a topic costs
nothing per record, and one that drops all of a topic opens no batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from twinlog.batches.bodies import OpenRecord
from twinlog.transforms.parts import RecordParts
from twinlog.transforms.predicates import Predicate, TopicNameMatches
from twinlog.transforms.routers import RegexRouter, TimestampRouter
from twinlog.transforms.steps import Filter, Transform


class TransformedRecord(NamedTuple):
    topic: str
    """The topic on the target."""
    record: OpenRecord


@dataclass(frozen=True, slots=True)
class Step:
    """A transform, and for which records it is applied."""

    name: str
    transform: Transform
    predicate: Predicate | None = None
    negate: bool = False

    def applies(self, record: RecordParts) -> bool:
        return self.predicate is None or self.predicate.holds(record) is not self.negate


@dataclass(frozen=True, slots=True)
class Chain:
    steps: tuple[Step, ...] = ()

    def bind(self, topic: str) -> "BoundChain":
        """The chain for records whose copy is called `topic` as long as no router says otherwise."""
        name: str | None = topic
        steps: list[Step] = []
        for step in self.steps:
            applies: bool | None = None if step.predicate else True
            if name is not None and isinstance(step.predicate, TopicNameMatches):
                applies = step.predicate.holds_for(name) is not step.negate
            if applies is False:
                continue
            if name is not None and applies and isinstance(step.transform, Filter):
                return BoundChain(topic=name, steps=tuple(steps), drops_all=True)
            if name is not None and isinstance(step.transform, RegexRouter):
                routed = step.transform.routed(name)
                if applies or routed == name:
                    name = routed
                    steps.append(step)
                    continue
            steps.append(Step(step.name, step.transform) if applies else step)
            if isinstance(step.transform, RegexRouter | TimestampRouter):
                name = None
        if name is not None:
            steps = [step for step in steps if not isinstance(step.transform, RegexRouter)]
        return BoundChain(topic=topic if name is None else name, steps=tuple(steps), routes=name is None)


@dataclass(frozen=True, slots=True)
class BoundChain:
    """A chain for the records of one topic."""

    topic: str
    """Where the records go; with `routes`, the name with which each of them begins."""
    steps: tuple[Step, ...]
    """What is decided record by record."""
    drops_all: bool = False
    """True if no record passes."""
    routes: bool = False
    """True if the topic may differ from record to record."""

    @property
    def only_renames(self) -> bool:
        """True if all records go to `topic` unchanged."""
        return not self.steps and not self.drops_all

    @property
    def drops_records(self) -> bool:
        """True if a record may be dropped."""
        return self.drops_all or any(isinstance(step.transform, Filter) for step in self.steps)

    def apply_all(self, records: Sequence[OpenRecord]) -> list[OpenRecord]:
        """The records that are not dropped, for a chain that sends them all to one topic. Raises as
        `apply`."""
        if self.drops_all:
            return []
        return [outcome.record for record in records if (outcome := self.apply(record)) is not None]

    def apply(self, record: OpenRecord) -> TransformedRecord | None:
        """The record after all steps; None for one that is dropped.

        Raises WireFormatError for a record that cannot be read (CORRUPT_BATCH) or changed
        (RECORD_NOT_TRANSFORMED).
        """
        if self.drops_all:
            return None
        offset, timestamp_ms, body = record
        parts = RecordParts(self.topic, timestamp_ms, body)
        for step in self.steps:
            if step.applies(parts) and not step.transform.apply(parts):
                return None
        return TransformedRecord(parts.topic, (offset, timestamp_ms, parts.body))
