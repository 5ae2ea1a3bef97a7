"""The transforms of a flow, in the order in which its file names them.

Invariant: a chain that is bound to a topic gives each record the same outcome as its steps one after the
other; binding only decides early what depends on the topic alone. So a chain that merely renames a topic
costs nothing per record, and the records of a topic that no step concerns are not looked at.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from twinlog.batches.bodies import OpenRecord
from twinlog.transforms.predicates import Predicate, TopicNameMatches
from twinlog.transforms.steps import Filter, RegexRouter, Transform

_Change = Callable[[bytes], bytes | None]


@dataclass(frozen=True, slots=True)
class Step:
    """A transform, and for which records it is applied."""

    name: str
    transform: Transform
    predicate: Predicate | None = None
    negate: bool = False

    def concerns(self, topic: str) -> bool:
        """Whether it may be applied to a record of this topic."""
        predicate = self.predicate
        return not isinstance(predicate, TopicNameMatches) or predicate.holds_for(topic) is not self.negate

    def routed(self, topic: str) -> str:
        """The name of the topic after this step."""
        router = self.transform
        return router.routed(topic) if isinstance(router, RegexRouter) and self.concerns(topic) else topic


@dataclass(frozen=True, slots=True)
class Chain:
    """Invariant: a router has no predicate that looks at records, so all records of a topic go to one."""

    steps: tuple[Step, ...] = ()

    def bind(self, topic: str) -> "BoundChain":
        """The chain for records whose copy is called `topic` as long as no router says otherwise."""
        changes: list[_Change] = []
        drops_records = False
        for step in self.steps:
            transform, predicate = step.transform, step.predicate
            if isinstance(transform, RegexRouter):
                topic = step.routed(topic)
            elif step.concerns(topic):
                drops_records = drops_records or isinstance(transform, Filter)
                if predicate is None or isinstance(predicate, TopicNameMatches):
                    changes.append(transform.change)
                else:
                    changes.append(_where(predicate.holds, transform.change, negate=step.negate))
        return BoundChain(topic, tuple(changes), drops_records)


@dataclass(frozen=True, slots=True)
class BoundChain:
    """A chain for the records of one topic."""

    topic: str
    """Where the records go."""
    changes: tuple[_Change, ...] = ()
    """What is done to the body of each record; None drops it."""
    drops_records: bool = False
    """True if a record may be dropped."""

    def apply(self, records: Sequence[OpenRecord]) -> list[OpenRecord]:
        """The records that pass, in order and with their offsets. Raises WireFormatError (CORRUPT_BATCH) for
        one that cannot be read."""
        passed: list[OpenRecord] = []
        for record in records:
            body = record[2]
            for change in self.changes:
                changed = change(body)
                if changed is None:
                    break
                body = changed
            else:
                passed.append(record if body is record[2] else (record[0], record[1], body))
        return passed


def _where(holds: Callable[[bytes], bool], change: _Change, *, negate: bool) -> _Change:
    if negate:
        return lambda body: body if holds(body) else change(body)
    return lambda body: change(body) if holds(body) else body
