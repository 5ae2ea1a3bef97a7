"""What a service knows of changed rules: kept through every absence of configsync."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from twinlog.config import Configuration, FlowConfig, load
from twinlog.errors import ConfigError, TransientKafkaError
from twinlog.kafka.table import Table
from twinlog.model import Flow
from twinlog.service.feeds import rules as rules_feed
from twinlog.service.feeds.registry import Decisions, registry_name
from twinlog.service.feeds.rules import AppliedRules, flow_in_effect
from twinlog.service.feeds.rules_record import NO_RULES, RuleOrigin, RulesRecord
from twinlog.service.feeds.tables import ToldTables
from twinlog.service.runtime import Backoff
from twinlog.testing.brokers import eventually
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog_checkpoint.config import checkpoint_flow
from twinlog_configsync.model.records import RegistryCodec
from twinlog_heartbeat.config import heartbeat_flow
from unit.decided import Joined, decide

FLOW = Flow("A", "B")


BACKOFF = Backoff(initial_seconds=0.01, max_seconds=0.01, random=lambda: 0.0)


@pytest.fixture
def target() -> FakeCluster:
    return FakeCluster("B")


@pytest.fixture
async def decisions(target: FakeCluster) -> Decisions:
    channel: Any = Joined(ToldTables(asyncio.Event()))
    made = Decisions(channel, clock=FakeClock(), backoff=BACKOFF)
    made.add(FLOW, target)
    return made


async def put(decisions: Decisions, target: FakeCluster, values: dict[str, str]) -> None:
    """These are the rules that configsync has stored, and this process has read."""
    await decide(target, FLOW, rules=values)
    await decisions.know(FLOW)


async def test_a_flow_nothing_is_known_of_follows_its_file(decisions: Decisions) -> None:
    assert decisions.rules(FLOW) == NO_RULES
    assert not decisions.knows(FLOW)


async def test_what_is_known_stays_while_nothing_answers(decisions: Decisions, target: FakeCluster) -> None:
    await put(decisions, target, {"groups": "g1"})
    target.take_away()
    with pytest.raises(TransientKafkaError):
        await decisions.know(FLOW)
    assert decisions.rules(FLOW).values == {"groups": "g1"}


async def test_subscribers_hear_of_changes_and_of_nothing_else(
    decisions: Decisions, target: FakeCluster
) -> None:
    heard = decisions.subscribe()
    heard.clear()
    await put(decisions, target, {"groups": "g1"})
    assert heard.is_set()
    heard.clear()
    await decisions.know(FLOW)
    assert not heard.is_set()
    await put(decisions, target, {})
    assert heard.is_set()
    assert decisions.rules(FLOW).values == {}


@pytest.mark.parametrize("by", ["its topic", "configsync"])
async def test_rules_that_the_owners_file_replaces_count_only_where_configsync_itself_tells_them(
    target: FakeCluster, tmp_path: Path, by: str
) -> None:
    """configsync puts aside what its own file replaces; another file may be an older one."""
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.groups = g2\n"
    )
    rule = RulesRecord(
        revision=1,
        updated_at_ms=1,
        values={"groups": "g1"},
        origins={"groups": RuleOrigin(replaced="g0")},
    )
    await decide(target, FLOW, rules=rule)
    stop = asyncio.Event()
    owner = Table(cluster=target, topic=registry_name(FLOW).topic, codec=RegistryCodec())
    await owner.load()
    told = ToldTables(stop)
    if by == "configsync":
        told.show(registry_name(FLOW), owner, lambda _key: True)
    channel: Any = Joined(told)
    followed = Decisions(channel, clock=FakeClock(), backoff=BACKOFF, patience_seconds=0.01)
    followed.add(FLOW, target)
    applied = AppliedRules(followed, load(file, environ={}), FLOW, lambda _config: None)
    async with asyncio.TaskGroup() as group:
        group.create_task(followed.run(stop), name="decisions")
        await eventually(lambda: followed.knows(FLOW))
        stop.set()
    assert applied.values == ({"groups": "g1"} if by == "configsync" else {})


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
    decisions: Decisions, target: FakeCluster, tmp_path: Path
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
    )
    configuration = load(file, environ={})
    taken: list[FlowConfig] = []
    applied = AppliedRules(decisions, configuration, FLOW, taken.append)
    await put(decisions, target, {"groups": "g1"})
    await applied.apply()
    await put(decisions, target, {})
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
    decisions: Decisions,
    target: FakeCluster,
    configuration: Configuration,
    compile_rules: Callable[[FlowConfig], object],
) -> None:
    taken: list[object] = []
    stop = asyncio.Event()
    await put(decisions, target, {"groups": ".*|${env:B_PASSWORD}"})
    with structlog.testing.capture_logs() as lines:
        async with asyncio.TaskGroup() as group:
            applied = AppliedRules(
                decisions, configuration, FLOW, lambda config: taken.append(compile_rules(config))
            )
            group.create_task(applied.run(stop), name="follow")
            await eventually(lambda: any(line["event"] == "changed_rules_unusable" for line in lines))
            await put(decisions, target, {"groups": "g1"})
            await eventually(lambda: bool(taken))
            stop.set()
    assert len(taken) == 1
    assert SECRET not in repr(lines)


async def test_a_changed_rule_is_followed_once_the_secrets_of_the_file_can_be_read_again(
    decisions: Decisions, target: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    await put(decisions, target, {"groups": "g1"})
    with structlog.testing.capture_logs() as lines:
        async with asyncio.TaskGroup() as group:
            applied = AppliedRules(decisions, configuration, FLOW, taken.append)
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
