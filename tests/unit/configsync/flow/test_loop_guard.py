"""Flows that keep names never copy a topic in a loop, whatever rules came later and in whichever process."""

import asyncio
from pathlib import Path

import pytest

from twinlog.config import load
from twinlog.errors import ConfigError
from twinlog.loops import circle_of
from twinlog.model import Flow
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog_configsync.config import configsync_flows
from twinlog_configsync.flow.loop_guard import Partner
from twinlog_configsync.model.reasons import SyncReason
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.live_rules import RuleChange, RuleOperation
from unit.configsync.configsync_rig import ConfigSyncRig

TOPICS = [Scope.TOPICS]


class FileRig:
    """The flows of a file that keeps names, in one process, or each in a process of its own."""

    def __init__(self, directory: Path, flows: dict[str, str], *, divided: bool) -> None:
        clock = FakeClock()
        aliases = sorted({end for name in flows for end in name.split("->")})
        self.clusters = {alias: FakeCluster(alias, clock=clock) for alias in aliases}
        lines = [
            f"clusters = {', '.join(aliases)}",
            *(f"{alias}.bootstrap.servers = {alias.lower()}:1" for alias in aliases),
            "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
            "replication.factor = 1",
            "offset.storage.replication.factor = 1",
            "emit.heartbeats.enabled = false",
            "heartbeats.replication.enabled = false",
        ]
        for name, topics in flows.items():
            lines += [f"{name}.enabled = true", f"{name}.topics = {topics}"]
        file = directory / "mm2.properties"
        file.write_text("\n".join(lines))
        self.flows = self._process(file, clock)
        others = [self._process(file, clock) for _ in flows] if divided else [self.flows] * len(flows)
        known = [Flow.parse(name) for name in flows]
        for (name, rig), there in zip(self.flows.items(), others, strict=True):
            partners: list[Partner] = []
            for other, each in there.items():
                if Flow.parse(other) in circle_of(Flow.parse(name), known):
                    partners.append(each.known_elsewhere() if divided else each.passes)
            rig.passes.loop_guard.partners = partners

    def _process(self, file: Path, clock: FakeClock) -> dict[str, ConfigSyncRig]:
        return {
            str(each.flow): ConfigSyncRig(
                config=each,
                source=self.clusters[each.flow.source],
                target=self.clusters[each.flow.target],
                clock=clock,
            )
            for each in configsync_flows(load(file, environ={}))
        }

    async def refresh(self) -> None:
        for rig in self.flows.values():
            rig.clock.advance(10)
            await rig.refresh(TOPICS)

    async def add(self, flow: str, topics: str) -> None:
        change = RuleChange(key="topics", operation=RuleOperation.ADD, value=topics)
        await self.flows[flow].commands.update_rules([change])

    def copied(self, flow: str) -> set[str]:
        return {name for name, entry in self.flows[flow].topics().items() if entry.selected}


@pytest.mark.parametrize("divided", [False, True], ids=["one process", "a process each"])
async def test_a_rule_that_makes_a_loop_with_the_rule_of_another_flow_is_refused(
    tmp_path: Path, divided: bool
) -> None:
    file = FileRig(tmp_path, {"A->B": "orders", "B->C": ".*", "C->A": "payments"}, divided=divided)
    await file.refresh()
    await file.add("A->B", "shared")
    await file.refresh()
    with pytest.raises(ConfigError, match="'shared', for example") as refused:
        await file.add("C->A", "shared")
    assert refused.value.reason == "LOOP"
    await file.add("C->A", "other")


@pytest.mark.parametrize("divided", [False, True], ids=["one process", "a process each"])
async def test_a_pattern_that_meets_another_flows_topic_is_refused(tmp_path: Path, divided: bool) -> None:
    file = FileRig(tmp_path, {"A->B": "orders", "B->C": ".*", "C->A": "payments"}, divided=divided)
    file.clusters["B"].add_topic("eu-orders-7")
    await file.add("A->B", ".*-orders-.*")
    await file.refresh()
    with pytest.raises(ConfigError) as refused:
        await file.add("C->A", "eu-[a-z]+-[0-9]+")
    assert refused.value.reason == "LOOP"


@pytest.mark.parametrize("divided", [False, True], ids=["one process", "a process each"])
async def test_a_topic_that_comes_later_and_that_both_flows_select_is_not_copied(
    tmp_path: Path, divided: bool
) -> None:
    flows = {"A->B": "[a-z]+-eu", "B->C": ".*-eu", "C->A": "orders-.*"}
    file = FileRig(tmp_path, flows, divided=divided)
    for name in ("users-eu", "orders-us", "orders-eu"):
        for cluster in file.clusters.values():
            cluster.add_topic(name)
    for _ in range(2):
        await file.refresh()
    assert [file.copied(flow) for flow in flows] == [{"users-eu"}, {"users-eu"}, {"orders-us"}]
    for rig in file.flows.values():
        assert rig.sync.status.reason == SyncReason.LOOP
        assert "orders-eu is not copied" in rig.sync.status.message
        told = await rig.commands.explain("orders-eu")
        assert told[0].verdict == "CYCLE"
        assert "would copy topics in a loop ('orders-eu', for example)" in told[0].rule


@pytest.mark.parametrize("divided", [False, True], ids=["one process", "a process each"])
async def test_a_standby_explains_a_loop_as_the_owner_does(tmp_path: Path, divided: bool) -> None:
    flows = {"A->B": "[a-z]+-eu", "B->C": ".*", "C->A": "orders-.*"}
    file = FileRig(tmp_path, flows, divided=divided)
    for cluster in file.clusters.values():
        cluster.add_topic("orders-eu")
    for name in flows:
        rig = file.flows[name]
        rig.passes.stand_by()
        await rig.passes.follow()
        of_a_pass = rig.passes.rules
        (told, *_) = await rig.commands.explain("orders-eu")
        assert (told.verdict, "would copy topics in a loop" in told.rule) == ("CYCLE", True)
        assert rig.passes.rules is of_a_pass, "a question changes nothing in the middle of a pass"


@pytest.mark.parametrize("divided", [False, True], ids=["one process", "a process each"])
async def test_a_loop_over_a_third_cluster_is_found(tmp_path: Path, divided: bool) -> None:
    file = FileRig(tmp_path, {"A->B": "a.*", "B->C": "b.*", "C->A": "c.*", "B->A": "never"}, divided=divided)
    for cluster in file.clusters.values():
        cluster.add_topic("all")
    await file.refresh()
    await file.add("B->C", "al+")
    await file.refresh()
    assert file.copied("B->C") == {"all"}
    with pytest.raises(ConfigError, match="C->A and A->B and B->C"):
        await file.add("C->A", ".*ll")


@pytest.mark.parametrize("divided", [False, True], ids=["one process", "a process each"])
async def test_two_flows_may_copy_a_topic_both_ways(tmp_path: Path, divided: bool) -> None:
    flows = {"A->B": "orders", "B->A": "payments"}
    file = FileRig(tmp_path, flows, divided=divided)
    for cluster in file.clusters.values():
        cluster.add_topic("shared")
    for flow in flows:
        await file.add(flow, "shared")
    await file.refresh()
    assert [file.copied(flow) for flow in flows] == [{"shared"}, {"shared"}]


async def test_flows_that_form_no_circle_ask_nothing(tmp_path: Path) -> None:
    file = FileRig(tmp_path, {"A->B": ".*", "C->B": ".*"}, divided=True)
    file.clusters["A"].add_topic("orders")
    await file.refresh()
    assert file.copied("A->B") == {"orders"}
    assert file.flows["A->B"].passes.rules.selector.comes_back is None


async def test_a_partner_that_is_away_takes_no_turn_of_other_flows(tmp_path: Path) -> None:
    file = FileRig(tmp_path, {"A->B": "a.*", "B->C": "b.*", "C->A": "c.*"}, divided=True)
    rig, turns = file.flows["A->B"], []
    partners, rig.gate = rig.passes.loop_guard.partners, asyncio.Semaphore(1)
    rig.restart()
    rig.passes.loop_guard.partners = partners

    async def note(call: Call) -> None:
        turns.append(rig.gate.locked())

    file.clusters["C"].intercept("cluster_id", note)
    await rig.refresh(TOPICS)
    assert turns == [False]


async def test_only_the_first_cluster_gives_configs_to_a_topic_that_is_copied_both_ways(
    tmp_path: Path,
) -> None:
    file = FileRig(tmp_path, {"A->B": "orders", "B->A": "orders"}, divided=False)
    for alias, retention in (("A", "1000"), ("B", "2000")):
        file.clusters[alias].add_topic("orders", configs={"retention.ms": retention})
    scopes = [Scope.TOPICS, Scope.CONFIGS]
    for _ in range(2):
        for rig in file.flows.values():
            await rig.refresh(scopes)
    for cluster in file.clusters.values():
        assert cluster.topics["orders"].configs["retention.ms"] == "1000"
