"""Which heartbeats are written where. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from twinlog.model import ClusterAlias, Flow
from twinlog_heartbeat.config import HeartbeatFlow


class Purpose(Enum):
    MM2 = "mm2"
    """On the flow's target, as MM2's heartbeat connector does; it shows that the target can be written."""
    PROOF = "proof"
    """On the flow's source: only a working copy brings it to the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """One heartbeat record that is written at an interval."""

    flow: Flow
    """The key of the record."""
    purpose: Purpose
    cluster: ClusterAlias
    """Where it is written."""

    @property
    def name(self) -> str:
        return f"beat {self.flow} on {self.cluster}"


def planned_beats(flows: Iterable[HeartbeatFlow]) -> list[Beat]:
    """The heartbeats of these flows, and Twinlog's proof of the path.

    MM2 writes (A, B) to B for every flow whose heartbeats are on, replicating or not. On A it writes (B, A),
    the heartbeat of the reverse flow. Our proof on A has the key (A, B), so neither replaces the other in the
    compacted topic.
    """
    beats: list[Beat] = []
    for entry in flows:
        if not entry.emits:
            continue
        beats.append(Beat(flow=entry.flow, purpose=Purpose.MM2, cluster=entry.flow.target))
        if entry.replicates:
            beats.append(Beat(flow=entry.flow, purpose=Purpose.PROOF, cluster=entry.flow.source))
    return beats
