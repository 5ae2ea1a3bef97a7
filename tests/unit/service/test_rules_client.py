"""What a service knows of changed rules: kept through every absence of configsync."""

from pathlib import Path

import grpc
import pytest

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.config import load
from twinlog.errors import ConfigError
from twinlog.model import Flow
from twinlog.service.errors_wire import PeerUnavailableError
from twinlog.service.rules_client import RulesWatch, flow_in_effect
from twinlog.service.runtime import Backoff
from twinlog.service.watch_client import Lost, Received, Restarted
from twinlog.testing.fake_clock import FakeClock

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
