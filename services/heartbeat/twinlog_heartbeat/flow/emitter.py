"""Writes one heartbeat at an interval.

All heartbeats of an interval are due at the same moments, so those of many flows for one topic share a batch.

The metrics of the service.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import random

from opentelemetry.metrics import Meter

from twinlog.clock import Clock
from twinlog.config import FlowConfig
from twinlog.errors import TwinlogError
from twinlog.kafka.admin.compacted_topic import ensure_compacted_topic
from twinlog.kafka.ports import LogWriter, TopicAdmin
from twinlog.model import Flow, TopicPartition
from twinlog.service.runtime import Backoff, Loop, retrying_loop
from twinlog.service.waiting import wait_for_any
from twinlog.telemetry import instruments
from twinlog.telemetry.instruments import Figures
from twinlog.telemetry.metrics import services as metrics
from twinlog.telemetry.metrics.spec import flow_attributes
from twinlog.wire import Heartbeat, encode_heartbeat
from twinlog.wire.heartbeat import HEARTBEATS_PARTITION
from twinlog_heartbeat.config import HeartbeatFlow, heartbeat_flow
from twinlog_heartbeat.model.delays import FlowDelay, PathState
from twinlog_heartbeat.model.state import Beat, HeartbeatState


class HeartbeatInstruments:
    """Counts heartbeats (as a `BeatMeter`), and publishes the state of every flow."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._records = instruments.counter(meter, metrics.HEARTBEAT_RECORDS)
        self._delay = instruments.histogram(meter, metrics.HEARTBEAT_DELAY)

    def emitted(self, flow: Flow) -> None:
        self._records.add(1, {**_attributes(flow), "twinlog.outcome": "emitted"})

    def observed(self, flow: Flow, *, delay_seconds: float) -> None:
        self._records.add(1, {**_attributes(flow), "twinlog.outcome": "observed"})
        self._delay.record(delay_seconds, _attributes(flow))

    def show(self, delays: Callable[[], Iterable[FlowDelay]]) -> None:
        """Call it once; `delays` is called at each scrape."""

        instruments.observe_each(
            self._meter,
            lambda: [(_attributes(delay.flow), delay) for delay in delays()],
            {
                metrics.HEARTBEAT_AGE: lambda delay: _seconds(delay.age_ms),
                metrics.HEARTBEAT_PATH: lambda delay: [
                    (int(delay.state is state), {"twinlog.state": state.value}) for state in PathState
                ],
                metrics.HEARTBEAT_CLOCK_SKEW: lambda delay: _seconds(delay.clock_skew_ms),
            },
        )


def _seconds(milliseconds: float | None) -> Figures:
    return [] if milliseconds is None else [(milliseconds / 1000, {})]


def _attributes(flow: Flow) -> dict[str, str]:
    return flow_attributes(flow.source, flow.target)


# Creates the heartbeats topic on the target of a flow whose heartbeats are off, as MM2 does.

LOOK_INTERVAL_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicKeeper:
    """For flows without an emitter; emitters create the topic to which they write."""

    entry: HeartbeatFlow
    admin: TopicAdmin
    clock: Clock
    refusal: Callable[[Flow], TwinlogError | None]

    @property
    def name(self) -> str:
        flow, policy = self.entry.flow, self.entry.policy
        return f"keep {policy.heartbeats_topic()} on {flow.target} for {flow}"

    async def run(self, stop: asyncio.Event) -> None:
        await retrying_loop(
            self.name,
            self._step,
            stop=stop,
            interval_seconds=LOOK_INTERVAL_SECONDS,
            backoff=Backoff(initial_seconds=0.5, max_seconds=30.0, random=random),
            clock=self.clock,
        )

    async def _step(self) -> None:
        refused = self.refusal(self.entry.flow)
        if refused is not None:
            raise refused
        await _ensure_topic(self.admin, self.entry)


# The heartbeats of one flow under the rules in force: changed rules restart its loops.


@dataclass(slots=True, kw_only=True)
class FlowBeats:
    """One flow."""

    entry: HeartbeatFlow
    """The rules in force."""
    state: HeartbeatState
    loops_of: Callable[[HeartbeatFlow], Mapping[str, Loop]]
    """Returns the writing loops, by name."""
    _replaced: asyncio.Event = field(default_factory=asyncio.Event)

    def follow(self, config: FlowConfig) -> None:
        """Apply changed rules. Raises ConfigError for a filter that cannot be used."""
        entry = heartbeat_flow(config)
        self.state.follow(entry)
        writes_as_before = (entry.emits, entry.interval_seconds) == (
            self.entry.emits,
            self.entry.interval_seconds,
        )
        self.entry = entry
        if not writes_as_before:
            self._replaced.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Loop: write heartbeats until `stop`, by the rules in force."""
        while not stop.is_set():
            self._replaced.clear()
            halt = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                for name, loop in self.loops_of(self.entry).items():
                    group.create_task(_ended(loop, halt), name=name)
                await wait_for_any(stop, self._replaced)
                halt.set()


async def _ended(loop: Loop, halt: asyncio.Event) -> None:
    await loop(halt)


def seconds_to_next(now_ms: int, interval_seconds: float) -> float:
    """Until the wall clock shows the next multiple of the interval.

    >>> [seconds_to_next(now_ms, 1.0) for now_ms in (10_000, 10_250, 10_999)]
    [1.0, 0.75, 0.001]
    """
    interval_ms = interval_seconds * 1000
    return (interval_ms - now_ms % interval_ms) / 1000


@dataclass(slots=True, kw_only=True)
class BeatEmitter:
    """The loop of one heartbeat. Runs until stop. Failures are passed to the state and retried."""

    beat: Beat
    entry: HeartbeatFlow
    state: HeartbeatState
    admin: TopicAdmin
    writer: LogWriter
    """Shared with other flows; its client has producer settings, the admin client has its own."""
    clock: Clock
    refusal: Callable[[Flow], TwinlogError | None]
    """Returns why the flow must not run (both ends are the same cluster); None when nothing is known against
    it."""
    _topic_is_there: bool = False

    async def run(self, stop: asyncio.Event) -> None:
        await retrying_loop(
            self.beat.name,
            self._step,
            stop=stop,
            interval_seconds=lambda: seconds_to_next(self.clock.now_ms(), self.entry.interval_seconds),
            backoff=Backoff(initial_seconds=0.5, max_seconds=10.0, random=random),
            clock=self.clock,
            on_error=lambda error: self.state.on_emit_error(self.beat, error),
        )

    async def _step(self) -> None:
        """Write one heartbeat. Create the topic first, so that no broker creates it with its defaults."""
        refused = self.refusal(self.beat.flow)
        if refused is not None:
            raise refused
        try:
            if not self._topic_is_there:
                await _ensure_topic(self.admin, self.entry)
                self._topic_is_there = True
            now_ms = self.clock.now_ms()
            key, value = encode_heartbeat(
                Heartbeat(source=self.beat.flow.source, target=self.beat.flow.target, timestamp_ms=now_ms)
            )
            await self.writer.append(
                TopicPartition(self.entry.policy.heartbeats_topic(), HEARTBEATS_PARTITION),
                key=key,
                value=value,
                timestamp_ms=now_ms,
            )
        except TwinlogError:
            self._topic_is_there = False
            raise
        self.state.on_emitted(self.beat)


async def _ensure_topic(admin: TopicAdmin, entry: HeartbeatFlow) -> None:
    topic, factor = entry.policy.heartbeats_topic(), entry.topic_replication_factor
    await ensure_compacted_topic(admin, topic, replication_factor=factor)
