"""A flow between two clusters in memory, driven pass by pass."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from opentelemetry.metrics import NoOpMeterProvider

from twinlog.config import load
from twinlog.errors import TwinlogError
from twinlog.kafka.ports import AclBinding, ConfigSource
from twinlog.service.feeds.registry import registry_name
from twinlog.service.feeds.replicated_topics import ReplicatedTopic
from twinlog.service.feeds.tables import ToldTables
from twinlog.service.owner.lease import FlowLease
from twinlog.service.runtime import Backoff
from twinlog.telemetry import instruments
from twinlog.telemetry.metrics.services import CONFIGSYNC_CHANGES
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog_configsync.config import ConfigSyncFlow, configsync_flows
from twinlog_configsync.flow.change_log import ChangeLog
from twinlog_configsync.flow.commands import FlowCommands
from twinlog_configsync.flow.known_flow import OtherFlow
from twinlog_configsync.flow.passes import FlowPasses
from twinlog_configsync.flow.sync import FlowSync
from twinlog_configsync.model.records import RecordKey, RecordValue, StoredKind
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.desired import DesiredBindings

T = TypeVar("T")

REGISTRY = "mm2-configsync.A.internal"
READ_ORDERS = AclBinding(
    resource_type="TOPIC",
    resource_name="orders",
    pattern_type="LITERAL",
    principal="User:alice",
    host="*",
    operation="READ",
    permission="ALLOW",
)
_METER = NoOpMeterProvider().get_meter("test")


@dataclass(slots=True, kw_only=True)
class ConfigSyncRig:
    """Flow A->B over fakes. `restart` forgets everything but the clusters."""

    config: ConfigSyncFlow
    source: FakeCluster
    target: FakeCluster
    clock: FakeClock
    told: ToldTables = field(init=False)
    sync: FlowSync = field(init=False)
    commands: FlowCommands = field(init=False)
    passes: FlowPasses = field(init=False)
    gate: asyncio.Semaphore = field(default_factory=asyncio.Semaphore)
    """What flows of one process share: whose turn it is."""
    claims: DesiredBindings | None = None
    """What the flows of the process want, from the next restart on; None: it has no other flow."""
    neighbours: list[OtherFlow] = field(default_factory=list)
    """Flows into the same target of other processes."""
    refusal: TwinlogError | None = None
    """Why another process is the flow's owner."""
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self, *, random: Callable[[], float] = lambda: 0.0, backoff_seconds: float = 1.0) -> None:
        """`random` decides the length of back-offs."""
        self.told = ToldTables(self.stop)
        journal = _journal(self.config, self.clock)
        self.passes = passes = FlowPasses(
            self.config,
            source=self.source,
            target=self.target,
            told=self.told,
            claims=self.claims or DesiredBindings({self.config.flow}, {self.config.flow}),
            clock=self.clock,
            journal=journal,
            gate=self.gate,
            neighbours=self.neighbours,
        )
        backoff = Backoff(initial_seconds=backoff_seconds, max_seconds=backoff_seconds, random=random)
        self.sync = FlowSync(
            passes, clock=self.clock, backoff=backoff, journal=journal, refusal=lambda: self.refusal
        )
        self.commands = FlowCommands(
            passes, clock=self.clock, wake=self.sync.wake, owner=cast("FlowLease", self)
        )

    def known_elsewhere(self) -> OtherFlow:
        """The flow, as processes know it that do not run it."""
        return OtherFlow(
            self.config,
            target=self.target,
            claims=self.claims or DesiredBindings({self.config.flow}, {self.config.flow}),
            clock=self.clock,
            journal=_journal(self.config, self.clock),
        )

    async def hold(self, step: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self.refusal is not None:
            raise self.refusal
        return await step()

    async def refresh(self, scopes: Collection[Scope] = (Scope.TOPICS, Scope.CONFIGS)) -> None:
        await self.sync.sync(scopes, self.stop)

    @property
    def told_rows(self) -> Mapping[RecordKey, RecordValue]:
        """What peers are told."""
        return self.told.rows(registry_name(self.config.flow))

    @property
    def told_settled(self) -> bool:
        return RecordKey(StoredKind.FLOW) in self.told_rows

    def topics(self) -> dict[str, ReplicatedTopic]:
        told = [row for row in self.told_rows.values() if isinstance(row, ReplicatedTopic) and row.selected]
        return {row.source_topic: row for row in sorted(told, key=lambda row: row.source_topic)}

    async def target_overrides(self, topic: str) -> dict[str, str | None]:
        entries = (await self.target.describe_topic_configs([topic]))[topic]
        assert not isinstance(entries, Exception)
        return {entry.name: entry.value for entry in entries if entry.source is ConfigSource.TOPIC}


def _journal(config: ConfigSyncFlow, clock: FakeClock) -> ChangeLog:
    return ChangeLog(flow=config.flow, changes=instruments.counter(_METER, CONFIGSYNC_CHANGES), clock=clock)


def make_flow(
    directory: Path,
    properties: Mapping[str, str] | None = None,
    *,
    source: FakeCluster | None = None,
    target: FakeCluster | None = None,
) -> ConfigSyncRig:
    """A flow A->B with these properties beside the necessary ones."""
    settings = {
        "clusters": "A, B",
        "A.bootstrap.servers": "a:9092",
        "B.bootstrap.servers": "b:9092",
        "A->B.enabled": "true",
        "replication.factor": "1",
        "offset.storage.replication.factor": "1",
        **(properties or {}),
    }
    file = directory / "mm2.properties"
    file.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    (config,) = configsync_flows(load(file, environ={}))
    clock = FakeClock()
    return ConfigSyncRig(
        config=config,
        source=source or FakeCluster("A", clock=clock),
        target=target or FakeCluster("B", clock=clock),
        clock=clock,
    )
