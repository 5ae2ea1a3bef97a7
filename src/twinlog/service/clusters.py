"""The Kafka clusters of a process: opened once, closed at the end, and probed every few seconds."""

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

import structlog
from opentelemetry.metrics import Meter, Observation

from twinlog.clock import Clock
from twinlog.config import ClientConfig
from twinlog.errors import StateError, TransientKafkaError, TwinlogError
from twinlog.kafka.outage import NO_OUTAGE, Outage, of_file
from twinlog.kafka.ports import KafkaCluster, Presence
from twinlog.model import ClusterAlias, Flow
from twinlog.service.interceptors import too_late
from twinlog.service.waiting import wait_or_stop
from twinlog.telemetry import instruments
from twinlog.telemetry.logging import RepeatLimiter
from twinlog.telemetry.metrics.service import CLUSTER_REACHABLE
from twinlog.telemetry.metrics.spec import CLUSTER

_log = structlog.stdlib.get_logger(__name__)

PROBE_INTERVAL_SECONDS = 10.0
PROBES_PER_SECOND = 4
"""Most probes of a process per second, whatever the number of clusters."""
_AWAY_PROBE_INTERVAL_SECONDS = 2.0
PROBE_TIMEOUT_SECONDS = 5.0
BROKERS_INTERVAL_SECONDS = 20.0
"""Time between two questions to each broker of a cluster, where all have answered."""
_TIMEOUT_MARGIN_SECONDS = 1.0
"""Lets the client's own time-out come first, because its error says more."""

UNKNOWN = "UNKNOWN"
"""Reason of a cluster without a probe yet."""

OpenCluster = Callable[[ClientConfig, float | None], KafkaCluster]
"""Settings, and the time-out of every call in seconds (None = the client's default)."""
FindLoops = Callable[[Mapping[ClusterAlias, str]], Mapping[Flow, StateError]]
"""Finds the flows that must not run, from the known cluster ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """Whether a cluster answered the last probe."""

    alias: ClusterAlias
    reachable: bool
    reason: str = ""
    """Stable reason of the last failure; UNKNOWN before the first probe; empty when reachable."""
    message: str = ""
    as_of_ms: int = 0
    """Wall-clock milliseconds of the last probe; 0 before the first."""
    cluster_id: str | None = None
    """Kafka's cluster id as last seen; kept while the cluster is away."""
    since_ms: int = 0
    """Wall-clock milliseconds since when it has not been reachable; 0 when it is, or was not asked yet."""
    outage: Outage = NO_OUTAGE


def probe_interval_seconds(clusters: int) -> float:
    """Time between two probes of a reachable cluster, in a process with so many clusters.

    >>> [probe_interval_seconds(clusters) for clusters in (2, 40, 100)]
    [10.0, 10.0, 25.0]
    """
    return max(PROBE_INTERVAL_SECONDS, clusters / PROBES_PER_SECOND)


class Clusters:
    """Connections by alias and client properties, and the state of each alias."""

    def __init__(
        self,
        probed: Mapping[ClusterAlias, ClientConfig],
        *,
        open_cluster: OpenCluster,
        stack: AsyncExitStack,
        clock: Clock,
        find_loops: FindLoops = lambda _ids: {},
    ) -> None:
        """`probed`: the aliases to probe, each with an admin client's settings. `stack` closes every
        connection that `get` opened. `find_loops` is called again for each newly learned id."""
        self._probed = dict(probed)
        self._open_cluster = open_cluster
        self._stack = stack
        self._clock = clock
        self._open: dict[tuple[ClusterAlias, frozenset[tuple[str, str]], float | None], KafkaCluster] = {}
        self._probes: dict[ClusterAlias, KafkaCluster] = {}
        self._whole_at: dict[ClusterAlias, float] = {}
        """When no broker was missing last, in monotonic seconds; none once the cluster is away."""
        self._statuses = {
            alias: ClusterStatus(alias=alias, reachable=False, reason=UNKNOWN, message="not looked at yet")
            for alias in self._probed
        }
        self._places: dict[ClusterAlias, Mapping[int, str]] = {
            alias: of_file(config.bootstrap_servers) for alias, config in self._probed.items()
        }
        """The brokers when the cluster answered last, and where; also those that were missing."""
        self._limiter = RepeatLimiter(interval_seconds=60.0)
        self._find_loops = find_loops
        self._loops: tuple[Mapping[ClusterAlias, str], Mapping[Flow, StateError]] = {}, {}

    async def get(self, config: ClientConfig, *, timeout_seconds: float | None = None) -> KafkaCluster:
        """The process's connection to a cluster with these client settings and this bound of every call (None
        = the client's default). Never waits for brokers.

        Flows share it whatever their `client.id`; the first one's is used.
        """
        settings = frozenset(item for item in config.properties.items() if item[0] != "client.id")
        key = (config.alias, settings, timeout_seconds)
        cluster = self._open.get(key)
        if cluster is None:
            cluster = self._open[key] = self._open_cluster(config, timeout_seconds)
            await self._stack.enter_async_context(cluster)
        return cluster

    def statuses(self, aliases: Iterable[ClusterAlias] | None = None) -> list[ClusterStatus]:
        """The last known state, of all probed clusters sorted by alias or of `aliases` in their order."""
        wanted = sorted(self._statuses) if aliases is None else aliases
        return [self._statuses[alias] for alias in wanted if alias in self._statuses]

    def cluster_id(self, alias: ClusterAlias) -> str | None:
        """Kafka's id of the cluster; None until the cluster was reached."""
        status = self._statuses.get(alias)
        return None if status is None else status.cluster_id

    def refusal(self, flow: Flow) -> StateError | None:
        """Why a flow must not run: both ends are one cluster (SAME_CLUSTER), or it would copy topics in a
        loop over two aliases of one (LOOP). None otherwise, and while the ids are unknown."""
        source, target = self.cluster_id(flow.source), self.cluster_id(flow.target)
        if source is None or source != target:
            return self._loops_now().get(flow)
        return StateError(
            f"flow {flow}: {flow.source} and {flow.target} are the same cluster (id {source}); copying it"
            f" into itself would never end. Correct {flow.source}.bootstrap.servers or"
            f" {flow.target}.bootstrap.servers.",
            reason="SAME_CLUSTER",
            metadata={"flow": str(flow), "cluster_id": source},
        )

    def _loops_now(self) -> Mapping[Flow, StateError]:
        ids = {alias: each.cluster_id for alias, each in self._statuses.items() if each.cluster_id}
        if ids != self._loops[0]:
            self._loops = ids, self._find_loops(ids)
        return self._loops[1]

    def hindrance(self) -> TwinlogError:
        """What delays a late answer: the unreachable clusters, if any."""
        away = [status for status in self.statuses() if not status.reachable and status.as_of_ms]
        if not away:
            return too_late()
        said = "; ".join(
            f"cluster {status.outage.judged(status.alias, so=f': {status.message}').words}" for status in away
        )
        return TransientKafkaError(
            said, reason=away[0].reason, metadata={"cluster": ", ".join(status.alias for status in away)}
        )

    async def probe(self, stop: asyncio.Event) -> None:
        """Loop: ask every cluster for its id, at the interval of `probe_interval_seconds`, and every 2 s
        while it is away; each by itself. Now and then each of its brokers is asked, too."""
        async with asyncio.TaskGroup() as group:
            probes = [
                group.create_task(self._probe_one(alias, stop), name=f"probe-{alias}")
                for alias in self._probed
            ]
            await stop.wait()
            # A probe of an unreachable cluster would delay the shutdown for its whole time-out.
            for task in probes:
                task.cancel()

    async def _probe_one(self, alias: ClusterAlias, stop: asyncio.Event) -> None:
        while not stop.is_set():
            before = self._statuses[alias]
            after, present = await self._look_at(alias)
            self._statuses[alias] = after
            self._log_change(before, after)
            if present is not None:
                outage = await self._outage(alias, present)
                self._statuses[alias] = replace(after, outage=outage)
                self._log_outage(alias, before.outage, outage)
            usual_seconds = probe_interval_seconds(len(self._probed))
            seconds = usual_seconds if after.reachable else _AWAY_PROBE_INTERVAL_SECONDS
            await wait_or_stop(stop, seconds)

    async def _look_at(self, alias: ClusterAlias) -> tuple[ClusterStatus, Presence | None]:
        known = self._statuses[alias]
        try:
            cluster = await self._probe_connection(alias)
            async with asyncio.timeout(PROBE_TIMEOUT_SECONDS + _TIMEOUT_MARGIN_SECONDS):
                present = await cluster.presence()
        except TimeoutError:
            reason, message = "KAFKA_TIMEOUT", f"no answer within {PROBE_TIMEOUT_SECONDS:g} s"
        except TwinlogError as error:
            reason, message = error.reason, str(error)
        else:
            status = ClusterStatus(
                alias=alias,
                reachable=True,
                as_of_ms=self._clock.now_ms(),
                cluster_id=present.cluster_id,
                outage=NO_OUTAGE if known.outage.reason else known.outage,
            )
            return status, present
        now_ms = self._clock.now_ms()
        status = ClusterStatus(
            alias=alias,
            reachable=False,
            reason=reason,
            message=message,
            as_of_ms=now_ms,
            cluster_id=known.cluster_id,
            since_ms=known.since_ms or now_ms,
            outage=Outage(reason=reason, brokers=self._places[alias]),
        )
        self._whole_at.pop(alias, None)
        return status, None

    async def _outage(self, alias: ClusterAlias, present: Presence) -> Outage:
        """The last known one while it cannot be told."""
        known = self._statuses[alias].outage
        whole_seconds = self._clock.monotonic() - self._whole_at.get(alias, -math.inf)
        if not known and whole_seconds < BROKERS_INTERVAL_SECONDS:
            return known
        try:
            outage = await (await self._probe_connection(alias)).outage(present, self._places[alias])
        except TwinlogError:
            return known
        self._places[alias] = {**outage.brokers, **present.brokers}
        if not outage:
            self._whole_at[alias] = self._clock.monotonic()
        return outage

    async def _probe_connection(self, alias: ClusterAlias) -> KafkaCluster:
        cluster = self._probes.get(alias)
        if cluster is None:
            cluster = self._probes[alias] = self._open_cluster(self._probed[alias], PROBE_TIMEOUT_SECONDS)
            await self._stack.enter_async_context(cluster)
        return cluster

    def _log_change(self, before: ClusterStatus, after: ClusterStatus) -> None:
        if after.reachable:
            if not before.reachable:
                _log.info("cluster_reachable", cluster=after.alias, cluster_id=after.cluster_id)
            return
        left_out = self._limiter.admit((after.alias, after.reason), now=self._clock.monotonic())
        if left_out is not None:
            _log.warning(
                "cluster_unreachable",
                cluster=after.alias,
                reason=after.reason,
                message=after.message,
                left_out=left_out,
            )

    def _log_outage(self, alias: ClusterAlias, before: Outage, after: Outage) -> None:
        if before.brokers == after.brokers:
            return
        if not after.brokers:
            _log.info("all_brokers_answer", cluster=alias)
            return
        _log.warning(
            "brokers_silent",
            cluster=alias,
            brokers=sorted(after.brokers),
            without_leader=after.without_leader,
            under_replicated=after.under_replicated,
        )

    def observe(self, meter: Meter) -> None:
        """Publish the states as a gauge."""

        def states() -> Iterable[Observation]:
            return [
                Observation(1 if status.reachable else 0, {CLUSTER: status.alias})
                for status in self._statuses.values()
                if status.reason != UNKNOWN
            ]

        instruments.gauge(meter, CLUSTER_REACHABLE, states)
