"""What configsync has decided about flows, as its peers know it: the topics of each flow, and its rules that
were changed. Followed from configsync, or from `mm2-configsync.<A>.internal` on the target."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import grpc

from twinlog.clock import Clock
from twinlog.errors import TwinlogError, WireFormatError
from twinlog.kafka.ports import KafkaCluster
from twinlog.kafka.table import Table
from twinlog.model import Flow
from twinlog.policy.internal_topics import configsync_topic
from twinlog.service.feeds.replicated_topics import REGISTRY, ReplicatedTopic, decode_topic
from twinlog.service.feeds.rules_record import NO_RULES, RulesRecord, decode_rules
from twinlog.service.feeds.tables import PATIENCE_SECONDS, TableFollower, TableName
from twinlog.service.runtime import Backoff
from twinlog.wire.connect_json import loads

FLOW, TOPIC, RULES = "flow", "topic", "rules"
TOLD_KINDS: Final = frozenset({FLOW, TOPIC, RULES})
"""What configsync tells of its registry."""
_VERSION = 1
_NO_TOPICS: Mapping[str, ReplicatedTopic] = MappingProxyType({})

Key = tuple[str, str]
"""Kind and name of a record."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The flow's selection was complete: an absent topic is not selected."""


Row = ReplicatedTopic | RulesRecord | Settled


@dataclass(frozen=True, slots=True)
class DecisionsCodec:
    """The rows of configsync's registry that concern its peers, which do not write them."""

    kinds: frozenset[str] = TOLD_KINDS

    def decode_key(self, key: bytes) -> Key | None:
        match loads(key, REGISTRY):
            case [str(kind)] if kind in self.kinds:
                return kind, ""
            case [str(kind), str(name)] if kind in self.kinds:
                return kind, name
        return None

    def decode_value(self, key: Key, value: bytes) -> Row:
        fields = loads(value, REGISTRY)
        if key[0] == RULES:
            return decode_rules(fields)
        try:
            if fields["version"] != _VERSION:
                raise WireFormatError(
                    f"the record {key} of configsync is of version {fields['version']}, this Twinlog knows"
                    f" {_VERSION}",
                    reason="WIRE_VERSION",
                )
            return decode_topic(fields) if key[0] == TOPIC else Settled()
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise WireFormatError(f"the record {key} of configsync is damaged: {error!r}") from error

    def encode(self, key: Key, value: Row | None) -> tuple[bytes, bytes | None]:
        raise AssertionError("only configsync writes its registry")


async def stored_rules(target: KafkaCluster, flow: Flow) -> RulesRecord:
    """The rules that differ from the file, for a command that asks no service; `NO_RULES` if they never were
    changed. Raises as `Table.load`."""
    return _rules(await _stored(target, flow, RULES))


async def stored_topics(target: KafkaCluster, flow: Flow) -> Mapping[str, ReplicatedTopic]:
    """Of a flow, by source topic, also those that it no longer has. Raises as `Table.load`."""
    rows = await _stored(target, flow, TOPIC)
    return {name: row for (_, name), row in rows.items() if isinstance(row, ReplicatedTopic)}


async def _stored(target: KafkaCluster, flow: Flow, kind: str) -> Mapping[Key, Row]:
    codec = DecisionsCodec(frozenset({kind}))
    return await Table(cluster=target, topic=configsync_topic(flow.source), codec=codec).load()


class Decisions:
    """All flows of a process. Run `run` as a loop; all else may be called at any time from the same event
    loop. What is known stays until configsync says otherwise.

    Invariant: a settled flow stays settled. A registry that begins anew removes no topic before it is
    complete again.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        *,
        clock: Clock,
        backoff: Backoff,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """`patience_seconds`: how long configsync may say nothing before its topics are read."""
        self._follower = TableFollower(
            channel,
            peer="configsync",
            clock=clock,
            backoff=backoff,
            on_change=self._changed,
            patience_seconds=patience_seconds,
        )
        self._tables: dict[Flow, Table[Key, Row]] = {}
        self._flows: dict[TableName, Flow] = {}
        self._seen: dict[Flow, Mapping[Key, Row]] = {}
        """The rows from which the rest comes."""
        self._topics: dict[Flow, Mapping[str, ReplicatedTopic]] = {}
        self._routes: dict[Flow, Mapping[str, ReplicatedTopic]] = {}
        self._ever_routed: dict[Flow, Mapping[str, ReplicatedTopic]] = {}
        self._settled: set[Flow] = set()
        self._told: set[Flow] = set()
        """Flows of which configsync itself has told what is known."""
        self._subscribers: list[asyncio.Event] = []

    def add(self, flow: Flow, target: KafkaCluster) -> None:
        """Follow this flow, too. Before `run`."""
        if flow not in self._tables:
            name = registry_name(flow)
            self._flows[name] = flow
            self._tables[flow] = Table(cluster=target, topic=name.topic, codec=DecisionsCodec())
            self._follower.add(name, self._tables[flow])

    def subscribe(self) -> asyncio.Event:
        """Return a new event for one caller, set now and at every change. The caller clears it before it
        reads."""
        event = asyncio.Event()
        event.set()
        self._subscribers.append(event)
        return event

    async def run(self, stop: asyncio.Event) -> None:
        """Loop: follow configsync, or the topics, until `stop`."""
        await self._follower.run(stop)

    @property
    def connected(self) -> bool:
        """Whether configsync tells them now."""
        return self._follower.connected

    def knows(self, flow: Flow) -> bool:
        """Whether configsync has told the flow, or its topic was read."""
        return flow in self._seen

    def is_told(self, flow: Flow) -> bool:
        """Whether configsync itself has told what is known of the flow."""
        return flow in self._told

    async def know(self, flow: Flow) -> None:
        """Read what is stored now, unless configsync tells it. Raises as `Table.load`."""
        await self._follower.know(registry_name(flow))

    def problem(self, flow: Flow) -> TwinlogError | None:
        """Why the stored decisions could not be read when it was tried last."""
        return self._follower.problem(registry_name(flow))

    def topics(self, flow: Flow) -> Mapping[str, ReplicatedTopic]:
        """The topics of one flow by source topic; empty when nothing is known of it."""
        return self._topics.get(flow, _NO_TOPICS)

    def routes(self, flow: Flow) -> Mapping[str, ReplicatedTopic]:
        """The topics of one flow to which records are routed, by the names that they have on the source."""
        return self._routes.get(flow, _NO_TOPICS)

    def ever_routed(self, flow: Flow) -> Mapping[str, ReplicatedTopic]:
        """As `routes`, with those that no record takes any more."""
        return self._ever_routed.get(flow, _NO_TOPICS)

    def settled(self, flow: Flow) -> bool:
        """True once configsync's selection for the flow was complete; until then an absent topic means
        nothing."""
        return flow in self._settled

    def rules(self, flow: Flow) -> RulesRecord:
        """The rules that differ from the file of configsync."""
        return _rules(self._seen.get(flow, {}))

    def _changed(self, name: TableName) -> None:
        flow = self._flows[name]
        rows, before = self._tables[flow].rows, self._seen.get(flow)
        is_news = rows != before
        if self._follower.is_told(name):
            is_news = is_news or flow not in self._told
            self._told.add(flow)
        elif is_news:
            self._told.discard(flow)
        if not is_news:
            return
        self._seen[flow] = rows
        known = {row.source_topic: row for row in rows.values() if isinstance(row, ReplicatedTopic)}
        topics = {name: row for name, row in known.items() if row.selected}
        is_settled = any(isinstance(row, Settled) for row in rows.values())
        if not is_settled and flow in self._settled:
            topics = {**self.topics(flow), **self.routes(flow), **topics}
        elif is_settled:
            self._settled.add(flow)
        self._topics[flow] = {name: row for name, row in topics.items() if not row.routed_from}
        self._routes[flow] = {name: row for name, row in topics.items() if row.routed_from}
        known = {**self.ever_routed(flow), **known}
        self._ever_routed[flow] = {name: row for name, row in known.items() if row.routed_from}
        for subscriber in self._subscribers:
            subscriber.set()


def _rules(rows: Mapping[Key, Row]) -> RulesRecord:
    found = rows.get((RULES, ""))
    return found if isinstance(found, RulesRecord) else NO_RULES


def registry_name(flow: Flow) -> TableName:
    """Where configsync keeps its registry of a flow."""
    return TableName(flow.target, configsync_topic(flow.source))
