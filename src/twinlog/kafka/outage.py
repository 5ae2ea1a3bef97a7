"""Brokers that do not answer: what is wrong, whether it stops something, and which of them to start. Plans of
moves, preflight, `status`, `explain` and all that names a cluster ask here. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from twinlog.kafka.reasons import REFUSALS, no_answer


class Judgement(NamedTuple):
    blocks: bool
    """Something is not done, or not known, before brokers are back."""
    words: str
    """What is wrong, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """The brokers of a cluster that do not answer. Without one it is false."""

    reason: str = ""
    """Why no broker answers; empty while others do."""
    brokers: Mapping[int, str] = field(default_factory=dict)
    """By node id, where each of them was (`host:port`); empty where this is not known. Those of a cluster
    that never answered have negative ids: their addresses are the file's."""
    without_leader: int = 0
    """Partitions whose leader does not answer, of the topics that the principal may see. The metadata may
    still name one, where too few controllers are left to change it."""
    under_replicated: int = 0
    """Partitions with fewer replicas in sync than they should have, those without a leader included."""
    in_sync: Mapping[int, int] = field(default_factory=dict)
    """How many of those with a leader have so many replicas in sync."""

    def __bool__(self) -> bool:
        return bool(self.reason or self.brokers)

    def judged(self, alias: str, *, so: str = "", waits: bool = False) -> Judgement:
        """`so`: what follows from it, in words. `waits`: something that is needed is known to wait for
        brokers, or takes no writes. Partitions without a leader always block: they are read or written, or
        will be.

        >>> Outage(reason="KAFKA_TIMEOUT", brokers={1: "b1:9092"}).judged("B", so=", and nothing moves")
        Judgement(blocks=True, words='B does not answer, and nothing moves: start broker 1 at b1:9092')
        """
        told = f"{self.told(alias)}{so}"
        blocks = bool(self.reason) or self.without_leader > 0 or waits
        return Judgement(blocks, f"{told}: {self.remedy}" if self.remedy else told)

    def told(self, alias: str) -> str:
        """What is wrong, in words.

        >>> Outage(brokers={2: "kafka-2:9092"}, without_leader=24, under_replicated=24).told("B")
        'broker 2 of B does not answer; the others do, but 24 partitions have no leader'
        >>> Outage(brokers={2: "kafka-2:9092"}, under_replicated=1).told("B")
        'broker 2 of B does not answer; the others do, and every partition has a leader, but 1 lacks replicas'
        """
        if self.reason:
            return self.who(alias)
        leaderless, lacking = self.without_leader, self.under_replicated - self.without_leader
        but = "and every partition has a leader"
        if leaderless:
            but = f"but {leaderless:,} {'partition has' if leaderless == 1 else 'partitions have'} no leader"
        if lacking > 0:
            but += f", {'and' if leaderless else 'but'} {lacking:,} {'more ' if leaderless else ''}"
            but += "lacks replicas" if lacking == 1 else "lack replicas"
        return f"{self.who(alias)}; the others do, {but}"

    def who(self, alias: str) -> str:
        """`broker 2 of B does not answer`, `B does not answer`."""
        if self.reason:
            return no_answer(alias, self.reason)
        ids = ", ".join(map(str, sorted(self.brokers)))
        who = f"broker {ids} of {alias} does" if len(self.brokers) == 1 else f"brokers {ids} of {alias} do"
        return f"{who} not answer"

    @property
    def remedy(self) -> str:
        """What to do; empty where starting brokers does not help, or it is not known which.

        >>> Outage(brokers={2: "kafka-2:9092", 3: ""}).remedy
        'start broker 2 at kafka-2:9092, and broker 3'
        >>> Outage(reason="KAFKA_UNAVAILABLE", brokers=of_file(["b1:9092", "b2:9092"])).remedy
        'start the brokers at b1:9092, b2:9092'
        """
        if self.reason in REFUSALS or not self.brokers:
            return ""
        if min(self.brokers) < 0:
            places = (address for _, address in sorted(self.brokers.items(), reverse=True))
            return f"start the brokers at {', '.join(places)}"
        starts = [
            f"broker {each}{f' at {address}' if address else ''}"
            for each, address in sorted(self.brokers.items())
        ]
        return f"start {', and '.join(starts)}"


NO_OUTAGE = Outage()
WAITS_FOR_BROKERS = frozenset(
    {
        *("KAFKA_TIMEOUT", "KAFKA_UNAVAILABLE", "LEADER_UNAVAILABLE", "COORDINATOR_UNAVAILABLE"),
        *("NOT_ENOUGH_REPLICAS", "HIGH_WATERMARK_BEHIND"),
    }
)
"""Reasons of what waits for brokers while some do not answer."""


def of_file(servers: Sequence[str]) -> dict[int, str]:
    """The brokers of a cluster that never answered, by the addresses of the file."""
    return {-1 - number: address for number, address in enumerate(servers)}
