"""What a service knows of changed rules: kept through every absence of configsync."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
import structlog

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.config import Configuration, FlowConfig, load
from twinlog.errors import ConfigError
from twinlog.model import Flow
from twinlog.service.errors_wire import PeerUnavailableError
from twinlog.service.feeds import rules as rules_feed
from twinlog.service.feeds.client import Lost, Received, Restarted
from twinlog.service.feeds.rules import AppliedRules, RulesWatch
from twinlog.service.feeds.rules_in_force import flow_in_effect
from twinlog.service.runtime import Backoff
from twinlog.testing.brokers import eventually
from twinlog.testing.fakes.clock import FakeClock
from twinlog_checkpoint.config import checkpoint_flow
from twinlog_heartbeat.config import heartbeat_flow

FLOW = Flow("A", "B")


@pytest.fixture
async def rules() -> RulesWatch:
    backoff = Backoff(initial_seconds=1.0, max_seconds=1.0, random=lambda: 0.0)
    return RulesWatch(grpc.aio.insecure_channel("127.0.0.1:1"), clock=FakeClock(), backoff=backoff)


def changed(values: dict[str, str], version: int = 1) -> pb2.ChangedRules:
    return pb2.ChangedRules(flow=types_pb2.Flow(source="A", target="B"), version=version, values=values)


async def test_a_flow_nothing_is_known_of_follows_its_file(rules: RulesWatch) -> None:
    assert rules.values(FLOW) == {}


async def test_what_is_known_stays_while_configsync_is_away_or_has_just_started(rules: RulesWatch) -> None:
    rules.handle(Restarted())
    rules.handle(Received(pb2.WatchRulesResponse(snapshot_item=changed({"groups": "g1"}))))
    rules.handle(Received(pb2.WatchRulesResponse(snapshot_end=pb2.RulesSnapshotEnd())))
    rules.handle(Lost(PeerUnavailableError("gone")))
    assert rules.values(FLOW) == {"groups": "g1"}
    rules.handle(Restarted())
    rules.handle(Received(pb2.WatchRulesResponse(snapshot_end=pb2.RulesSnapshotEnd())))
    assert rules.values(FLOW) == {"groups": "g1"}


async def test_subscribers_hear_of_changes_and_of_nothing_else(rules: RulesWatch) -> None:
    heard = rules.subscribe()
    heard.clear()
    rules.handle(Received(pb2.WatchRulesResponse(changed=changed({"groups": "g1"}))))
    assert heard.is_set()
    heard.clear()
    rules.handle(Received(pb2.WatchRulesResponse(changed=changed({"groups": "g1"}, version=2))))
    assert not heard.is_set()
    rules.handle(Received(pb2.WatchRulesResponse(changed=changed({}, version=3))))
    assert heard.is_set()
    assert rules.values(FLOW) == {}


async def test_stored_rules_do_not_replace_what_configsync_has_sent(rules: RulesWatch) -> None:
    """Also a flow whose rules were reset, or never changed, has been sent."""
    assert not rules.knows(FLOW)
    rules.handle(Received(pb2.WatchRulesResponse(changed=changed({}, version=2))))
    assert rules.knows(FLOW)
    assert rules.seed(FLOW, {"groups": "g1"}) == {}
    assert rules.values(FLOW) == {}


def test_changed_rules_are_checked_against_this_processes_file(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
    )
    configuration = load(file, environ={})
    assert flow_in_effect(configuration, FLOW, {}) == configuration.flow(FLOW)
    changed_flow = flow_in_effect(configuration, FLOW, {"groups": "g1"})
    assert changed_flow.checkpoint.groups.include == ("g1",)
    with pytest.raises(ConfigError, match="groups"):
        flow_in_effect(configuration, FLOW, {"groups": "("})


async def test_a_reset_is_followed_also_before_the_loop_has_seen_the_rules_that_it_resets(
    rules: RulesWatch, tmp_path: Path
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
    )
    configuration = load(file, environ={})
    taken: list[FlowConfig] = []
    applied = AppliedRules(rules, configuration, FLOW, taken.append)
    rules.seed(FLOW, {"groups": "g1"})
    await applied.apply()
    rules.handle(Received(pb2.WatchRulesResponse(changed=changed({}, version=2))))
    assert applied.problem
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(applied.run(stop), name="follow")
        await eventually(lambda: not applied.problem)
        stop.set()
    assert [each.checkpoint.groups.include for each in taken] == [("g1",), (".*",)]


SECRET = "hunter2-real-secret"


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    """Its provider reaches a secret."""
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
        "config.providers = env\n"
        "config.providers.env.class = org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
    )
    return load(file, environ={"B_PASSWORD": SECRET})


@pytest.mark.parametrize("key", ["topics", "groups", "topics.exclude", "emit.heartbeats.interval.seconds"])
def test_a_reference_in_a_rule_of_the_registry_is_refused_and_never_resolved(
    configuration: Configuration, key: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        flow_in_effect(configuration, FLOW, {key: "${env:B_PASSWORD}"})
    assert refused.value.reason == "REFERENCE_REFUSED"
    assert SECRET not in f"{refused.value}{refused.value.metadata}"


@pytest.mark.parametrize("compile_rules", [checkpoint_flow, heartbeat_flow])
async def test_a_service_keeps_its_rules_and_tells_nothing_when_the_registry_holds_a_reference(
    rules: RulesWatch, configuration: Configuration, compile_rules: Callable[[FlowConfig], object]
) -> None:
    taken: list[object] = []
    stop = asyncio.Event()
    forged = changed({"groups": ".*|${env:B_PASSWORD}"})
    rules.handle(Received(pb2.WatchRulesResponse(changed=forged)))
    with structlog.testing.capture_logs() as lines:
        async with asyncio.TaskGroup() as group:
            applied = AppliedRules(
                rules, configuration, FLOW, lambda config: taken.append(compile_rules(config))
            )
            group.create_task(applied.run(stop), name="follow")
            await eventually(lambda: any(line["event"] == "changed_rules_unusable" for line in lines))
            rules.handle(Received(pb2.WatchRulesResponse(changed=changed({"groups": "g1"}, version=2))))
            await eventually(lambda: bool(taken))
            stop.set()
    assert len(taken) == 1
    assert SECRET not in repr(lines)


async def test_a_changed_rule_is_followed_once_the_secrets_of_the_file_can_be_read_again(
    rules: RulesWatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule itself is right, and configsync does not send it twice."""
    monkeypatch.setattr(rules_feed, "FIRST_RETRY_SECONDS", 0.01)
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("password = planted\n")
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
        "config.providers = file\n"
        "config.providers.file.class = org.apache.kafka.common.config.provider.FileConfigProvider\n"
        f"B.ssl.key.password = ${{file:{secrets}:password}}\n"
    )
    configuration = load(file, environ={})
    secrets.rename(tmp_path / "away")
    taken: list[FlowConfig] = []
    stop = asyncio.Event()
    rules.handle(Received(pb2.WatchRulesResponse(changed=changed({"groups": "g1"}))))
    with structlog.testing.capture_logs() as lines:
        async with asyncio.TaskGroup() as group:
            applied = AppliedRules(rules, configuration, FLOW, taken.append)
            group.create_task(applied.run(stop), name="follow")
            await eventually(lambda: any(line["event"] == "changed_rules_unusable" for line in lines))
            assert str(secrets) in applied.problem
            (tmp_path / "away").rename(secrets)
            await eventually(lambda: bool(taken))
            stop.set()
    assert applied.problem == ""
    (followed,) = taken
    assert followed.checkpoint.groups.include == ("g1",)
    assert sum(line["event"] == "changed_rules_unusable" for line in lines) == 1
