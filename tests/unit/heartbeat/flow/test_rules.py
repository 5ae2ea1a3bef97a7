"""Rules that change while heartbeats are written: other loops, and other reasons for silence."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from opentelemetry.metrics import NoOpMeterProvider

from twinlog.config import Configuration, load
from twinlog.model import Flow
from twinlog.service.feeds.rules import flow_in_effect
from twinlog.service.runtime import Loop
from twinlog.testing.brokers import eventually
from twinlog.testing.virtual_time import FakeClock
from twinlog_heartbeat.config import HeartbeatFlow, expected_topics, heartbeat_flows
from twinlog_heartbeat.flow.emitter import FlowBeats, HeartbeatInstruments
from twinlog_heartbeat.model.state import Beat, HeartbeatState, Purpose

FLOW = Flow("A", "B")
PROOF = Beat(flow=FLOW, purpose=Purpose.PROOF, cluster="A")


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\nA->B.enabled = true\n"
    )
    return load(file, environ={})


class Flows:
    """A flow's beats, and what was started for it."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        flows = heartbeat_flows(configuration)
        meter = HeartbeatInstruments(NoOpMeterProvider().get_meter("test"))
        self.clock = FakeClock()
        self.state = HeartbeatState(flows, clock=self.clock, meter=meter, statuses=list)
        self.started: list[tuple[bool, float]] = []
        self.running = 0
        (entry,) = [entry for entry in flows if entry.flow == FLOW]
        self.beats = FlowBeats(entry=entry, state=self.state, loops_of=self._loops_of)

    def follow(self, values: Mapping[str, str]) -> None:
        self.beats.follow(flow_in_effect(self.configuration, FLOW, values))

    @property
    def reason(self) -> str:
        (delay,) = [each for each in self.state.delays() if each.flow == FLOW]
        return delay.reason

    def _loops_of(self, entry: HeartbeatFlow) -> Mapping[str, Loop]:
        async def loop(stop: asyncio.Event) -> None:
            self.started.append((entry.emits, entry.interval_seconds))
            self.running += 1
            await stop.wait()
            self.running -= 1

        return {"beat": loop}


async def test_changed_rules_start_the_loops_anew_and_others_do_not(configuration: Configuration) -> None:
    flows = Flows(configuration)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(flows.beats.run(stop), name="beats")
        await eventually(lambda: flows.started == [(True, 1.0)])
        flows.follow({"emit.heartbeats.interval.seconds": "5"})
        await eventually(lambda: flows.started == [(True, 1.0), (True, 5.0)])
        flows.follow({"emit.heartbeats.interval.seconds": "5", "groups": "other"})
        flows.follow({"emit.heartbeats.enabled": "false"})
        await eventually(lambda: flows.started == [(True, 1.0), (True, 5.0), (False, 1.0)])
        assert flows.running == 1
        stop.set()
    assert flows.running == 0


def test_the_reason_for_silence_is_that_of_the_rules(configuration: Configuration) -> None:
    flows = Flows(configuration)
    assert flows.reason == "STARTING"
    flows.follow({"emit.heartbeats.enabled": "false"})
    assert flows.reason == "HEARTBEATS_DISABLED"
    flows.follow({"heartbeats.replication.enabled": "false", "topics": "orders"})
    flows.state.on_emitted(PROOF)
    assert flows.reason == "NOT_REPLICATED", "beats that are written do not change that"
    flows.follow({})
    assert flows.reason == "STARTING"


def test_heartbeats_of_a_delayed_flow_are_missing_only_after_the_delay(configuration: Configuration) -> None:
    delayed = load(Path(configuration.file), environ={}, overrides={"twinlog.delay.seconds": "3600"})
    flows = Flows(delayed)
    flows.state.on_emitted(PROOF)
    flows.clock.advance(3600)
    assert flows.reason == "STARTING"
    flows.clock.advance(60)
    assert flows.reason == "HEARTBEAT_MISSING"


def test_replicated_heartbeats_are_expected_even_if_only_a_later_rule_selects_them(tmp_path: Path) -> None:
    """Otherwise they would be found a minute later, when all topics are listed."""
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\nA->B.enabled = true\n"
        "A->B.topics = orders\nA->B.heartbeats.replication.enabled = false\n"
    )
    flows = heartbeat_flows(load(file, environ={}))
    assert expected_topics(flows, "B") == {"A.heartbeats"}
    assert expected_topics(flows, "A") == set(), "B->A does not replicate"
