"""The state of the service: the delays of the flows and the known paths, updated by emitters and watchers. No
I/O."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from twinlog.clock import Clock
from twinlog.errors import TwinlogError
from twinlog.model import ClusterAlias, Flow
from twinlog.policy import ReplicationPolicy
from twinlog.wire import Heartbeat
from twinlog_heartbeat.config import HeartbeatFlow
from twinlog_heartbeat.model.delays import Blocker, DelayTracker, FlowDelay, LogEnds, PathReason

# The paths that heartbeats have travelled, from the names and the newest records of heartbeats topics.
# Pure.


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A chain of clusters that ends at the cluster of the topic."""

    observed_on: ClusterAlias
    topic: str
    """The heartbeats topic there, such as `B.A.heartbeats` on C."""
    upstream_clusters: tuple[ClusterAlias, ...]
    """From the origin to the last hop: A, B for `B.A.heartbeats`."""
    last_emitted_ms: int | None
    """When the newest heartbeat in it was emitted; None while none was read."""
    last_seen_ms: int | None


def upstream_chain(policy: ReplicationPolicy, topic: str) -> tuple[ClusterAlias, ...]:
    """The clusters that the topic's records passed, origin first; empty for the cluster's own `heartbeats`.

    Ends at an alias that occurs again, because names can form a circle.
    """
    chain: list[ClusterAlias] = []
    while (alias := policy.topic_source(topic)) is not None and alias not in chain:
        chain.append(alias)
        upstream = policy.upstream_topic(topic)
        if upstream is None or upstream == topic:
            break
        topic = upstream
    return tuple(reversed(chain))


class PathBook:
    """What was seen in the replicated heartbeats topics of every cluster."""

    def __init__(self) -> None:
        self._paths: dict[tuple[ClusterAlias, str], Path] = {}

    def on_topics(self, cluster: ClusterAlias, policy: ReplicationPolicy, topics: frozenset[str]) -> None:
        """Replace the known replicated heartbeats topics of a cluster."""
        for key in [key for key in self._paths if key[0] == cluster and key[1] not in topics]:
            del self._paths[key]
        for topic in topics:
            self._paths.setdefault(
                (cluster, topic),
                Path(
                    observed_on=cluster,
                    topic=topic,
                    upstream_clusters=upstream_chain(policy, topic),
                    last_emitted_ms=None,
                    last_seen_ms=None,
                ),
            )

    def on_heartbeat(self, cluster: ClusterAlias, topic: str, *, emitted_ms: int, seen_ms: int) -> None:
        """A heartbeat was read; one that is older than the newest changes nothing."""
        path = self._paths.get((cluster, topic))
        if path is None:
            return
        newest_ms = path.last_emitted_ms
        # One from the future was written before the clock was set back.
        if newest_ms is not None and emitted_ms < newest_ms <= seen_ms:
            return
        self._paths[cluster, topic] = Path(
            observed_on=cluster,
            topic=topic,
            upstream_clusters=path.upstream_clusters,
            last_emitted_ms=emitted_ms,
            last_seen_ms=seen_ms,
        )

    def paths(self) -> list[Path]:
        """All paths, sorted by cluster and topic."""
        return [self._paths[key] for key in sorted(self._paths)]


# Which heartbeats are written where. Pure.


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


class ClusterAnswer(Protocol):
    """Whether one cluster answers."""

    @property
    def alias(self) -> ClusterAlias: ...

    @property
    def reachable(self) -> bool: ...

    @property
    def as_of_ms(self) -> int:
        """Unix ms of the last answer or failure; 0 = it was not asked yet."""
        ...

    @property
    def reason(self) -> str: ...

    @property
    def message(self) -> str: ...


class BeatMeter(Protocol):
    """Counts heartbeats."""

    def emitted(self, flow: Flow) -> None: ...

    def observed(self, flow: Flow, *, delay_seconds: float) -> None:
        """A heartbeat of the flow arrived through it."""
        ...


class HeartbeatState:
    """The state of every flow that replicates, and of every path."""

    def __init__(
        self,
        flows: Iterable[HeartbeatFlow],
        *,
        clock: Clock,
        meter: BeatMeter,
        statuses: Callable[[], Iterable[ClusterAnswer]],
    ) -> None:
        """`statuses` tells which clusters answer: a probe notices a failure sooner than a heartbeat that
        times out."""
        self._statuses = statuses
        self.paths = PathBook()
        self._clock = clock
        self._flows = {entry.flow: entry for entry in flows if entry.replicates}
        started_ms = self._steady_ms()
        self._trackers = {
            flow: DelayTracker(
                flow=flow,
                started_ms=started_ms + round(1000 * entry.delay_seconds),
                silent_after_ms=entry.silent_after_ms,
            )
            for flow, entry in self._flows.items()
        }
        for entry in self._flows.values():
            self.follow(entry)
        self._watched_topics = {
            flow: entry.policy.format_remote_topic(flow.source, entry.policy.heartbeats_topic())
            for flow, entry in self._flows.items()
        }
        self._meter = meter

    def follow(self, entry: HeartbeatFlow) -> None:
        """Set the rules of the flow."""
        tracker = self._trackers.get(entry.flow)
        if tracker is not None:
            tracker.on_rules(silent_after_ms=entry.silent_after_ms, blocker=_standing_blocker(entry))

    def on_emitted(self, beat: Beat) -> None:
        """A heartbeat was written to its cluster."""
        self._meter.emitted(beat.flow)
        tracker = self._trackers.get(beat.flow)
        if tracker is not None and beat.purpose is Purpose.PROOF:
            tracker.on_emitted()

    def on_emit_error(self, beat: Beat, error: TwinlogError) -> None:
        """A heartbeat could not be written."""
        tracker = self._trackers.get(beat.flow)
        if tracker is not None and beat.purpose is Purpose.PROOF:
            blocker = Blocker(reason=error.reason, message=str(error))
            tracker.on_write_blocker(blocker, at_ms=self._clock.now_ms())

    def on_heartbeat(self, cluster: ClusterAlias, topic: str, heartbeat: Heartbeat, seen_ms: int) -> None:
        """A heartbeat arrived in a replicated topic: it proves the flow that made this copy."""
        steady_ms = self._steady_ms()
        for flow, tracker in self._trackers.items():
            if flow.target != cluster or self._watched_topics[flow] != topic:
                continue
            own = Flow(heartbeat.source, heartbeat.target) == flow
            tracker.on_observed(
                emitted_ms=heartbeat.timestamp_ms, seen_ms=seen_ms, own=own, steady_ms=steady_ms
            )
            if own:
                self._meter.observed(flow, delay_seconds=max(0, seen_ms - heartbeat.timestamp_ms) / 1000)

    def on_log_ends(self, flow: Flow, ends: LogEnds) -> None:
        """The source service reported the ends of a flow's logs."""
        tracker = self._trackers.get(flow)
        if tracker is not None:
            tracker.on_log_ends(ends)

    def without_beats(self) -> bool:
        """Whether a flow has no heartbeats that could prove it."""
        steady_ms = self._steady_ms()
        return any(tracker.lacks_beats(steady_ms) for tracker in self._trackers.values())

    def on_watch_blocker(self, cluster: ClusterAlias, error: TwinlogError | None) -> None:
        """A cluster cannot be read, or can be again."""
        blocker = None if error is None else Blocker(reason=error.reason, message=str(error))
        for flow, tracker in self._trackers.items():
            if flow.target == cluster:
                tracker.on_watch_blocker(blocker)

    def on_read_blocker(self, cluster: ClusterAlias, topic: str, error: TwinlogError | None) -> None:
        """A replicated heartbeats topic cannot be read, or can be again."""
        blocker = None if error is None else Blocker(reason=error.reason, message=str(error))
        for flow, tracker in self._trackers.items():
            if flow.target == cluster and self._watched_topics[flow] == topic:
                tracker.on_read_blocker(blocker)

    def delays(self) -> list[FlowDelay]:
        """Of all flows that replicate, sorted."""
        return [self._report(flow) for flow in sorted(self._trackers)]

    def _report(self, flow: Flow) -> FlowDelay:
        away = [
            Blocker(reason=status.reason, message=f"{status.alias}: {status.message}")
            for status in self._statuses()
            if status.alias in (flow.source, flow.target) and not status.reachable and status.as_of_ms
        ]
        return self._trackers[flow].report(
            self._clock.now_ms(), steady_ms=self._steady_ms(), away=away[0] if away else None
        )

    def _steady_ms(self) -> int:
        """By a clock that is never set."""
        return int(self._clock.monotonic() * 1000)


def _standing_blocker(entry: HeartbeatFlow) -> Blocker | None:
    """Why the configuration itself prevents the proof of a flow."""
    if not entry.emits:
        return Blocker(
            reason=PathReason.HEARTBEATS_DISABLED,
            message=(
                f"{entry.flow}.emit.heartbeats.enabled is false or its interval negative, so no heartbeats"
                " are written"
            ),
        )
    if not entry.copies_heartbeats:
        return Blocker(
            reason=PathReason.NOT_REPLICATED,
            message="heartbeats.replication.enabled is false and the topic filter does not select heartbeats",
        )
    return None
