"""Two flows into one target, owned by one process or by two: neither removes what the other one wants."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from twinlog.config import load
from twinlog.errors import TransientKafkaError
from twinlog.kafka.ports import AclBinding, QuotaEntity
from twinlog.model import Flow, TopicPartition
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog_configsync.config import configsync_flows, flows_of_others
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.desired import DesiredBindings
from twinlog_configsync.planning.live_rules import RuleChange, RuleOperation
from unit.configsync.configsync_rig import ConfigSyncRig

ALICE = QuotaEntity((("user", "alice"),))
BILLING = AclBinding(
    resource_type="GROUP",
    resource_name="billing",
    pattern_type="LITERAL",
    principal="User:app",
    host="*",
    operation="READ",
    permission="ALLOW",
)
SCOPES = [Scope.TOPICS, Scope.ACLS, Scope.QUOTAS]
FILE = """
clusters = A, B, C
A.bootstrap.servers = a:1
B.bootstrap.servers = b:1
C.bootstrap.servers = c:1
A->C.enabled = true
B->C.enabled = true
replication.factor = 1
offset.storage.replication.factor = 1
sync.topic.acls.enabled = true
twinlog.sync.topic.acls.mode = full
twinlog.sync.client.quotas.enabled = true
"""


def process(directory: Path, clusters: dict[str, FakeCluster], clock: FakeClock) -> dict[str, ConfigSyncRig]:
    """Both flows, as one process has them."""
    file = directory / "mm2.properties"
    file.write_text(FILE)
    flows = configsync_flows(load(file, environ={}))
    names = {each.flow for each in flows}
    claims = DesiredBindings(set(names), set(names))
    return {
        str(each.flow): ConfigSyncRig(
            config=each,
            source=clusters[each.flow.source],
            target=clusters[each.flow.target],
            clock=clock,
            claims=claims,
        )
        for each in flows
    }


@dataclass(slots=True, kw_only=True)
class SharedTarget:
    """Both sources have the same ACL and the same quota with other values. A->C created them on C."""

    clusters: dict[str, FakeCluster]
    first: ConfigSyncRig
    """Flow A->C, at its owner."""
    second: ConfigSyncRig
    """Flow B->C, at its owner."""
    standbys: list[ConfigSyncRig]

    async def refresh(self, flow: ConfigSyncRig) -> None:
        await flow.refresh(SCOPES)
        flow.clock.advance(10)
        for standby in self.standbys:
            await standby.passes.follow()

    def clear(self, name: str) -> None:
        """Remove everything from a source."""
        self.clusters[name].acls = set()
        self.clusters[name].quotas.clear()

    @property
    def acls(self) -> set[AclBinding]:
        return set(self.clusters["C"].acls)

    @property
    def rate(self) -> float | None:
        return self.clusters["C"].quotas.get(ALICE.parts, {}).get("producer_byte_rate")


@pytest.fixture(params=[1, 2, 3], ids=["one process", "two processes", "divided processes"])
async def shared(request: pytest.FixtureRequest, tmp_path: Path) -> SharedTarget:
    clock = FakeClock()
    clusters = {name: FakeCluster(name, clock=clock, authorizer=True) for name in "ABC"}
    for name, rate in (("A", 1000.0), ("B", 500.0)):
        clusters[name].quotas[ALICE.parts] = {"producer_byte_rate": rate}
        clusters[name].acls = {BILLING}
        clusters[name].set_group("billing")
    here = process(tmp_path, clusters, clock)
    there = here if request.param == 1 else process(tmp_path, clusters, clock)
    if request.param == 3:
        for flow, other in ((here["A->C"], here["B->C"]), (there["B->C"], there["A->C"])):
            flow.neighbours.append(other.known_elsewhere())
            flow.restart()
    made = SharedTarget(
        clusters=clusters,
        first=here["A->C"],
        second=there["B->C"],
        standbys=[here["B->C"], there["A->C"]] if request.param == 2 else [],
    )
    await made.refresh(made.first)
    await made.refresh(made.second)
    assert made.acls == {BILLING}
    return made


async def test_what_the_other_flow_wants_stays_although_it_did_not_create_it(shared: SharedTarget) -> None:
    shared.clear("A")
    await shared.refresh(shared.first)
    assert shared.acls == {BILLING}
    await shared.refresh(shared.second)
    assert shared.rate == 500.0, "now B->C sets it"
    shared.clear("B")
    await shared.refresh(shared.second)
    await shared.refresh(shared.first)
    await shared.refresh(shared.second)
    assert shared.acls == set()
    assert shared.rate is None


async def test_only_the_first_flow_by_name_sets_a_quota_that_both_want(shared: SharedTarget) -> None:
    assert shared.rate == 1000.0
    shared.clusters["C"].quotas.clear()
    await shared.refresh(shared.second)
    assert shared.rate is None, "it waits for A->C, which has not set it"
    await shared.refresh(shared.first)
    assert shared.rate == 1000.0


async def test_the_other_flow_wants_nothing_that_its_rules_no_longer_sync(shared: SharedTarget) -> None:
    off = [
        RuleChange(key=key, operation=RuleOperation.SET, value="false")
        for key in ("sync.topic.acls.enabled", "twinlog.sync.client.quotas.enabled")
    ]
    await shared.second.commands.update_rules(off)
    shared.clear("A")
    await shared.refresh(shared.second)
    await shared.refresh(shared.first)
    assert shared.acls == set()
    assert shared.rate is None


@pytest.mark.parametrize("shared", [3], ids=["divided processes"], indirect=True)
async def test_a_quota_of_another_flow_stays_as_it_is_while_its_registry_cannot_be_read(
    shared: SharedTarget,
) -> None:
    def refuse(call: Call) -> None:
        if "mm2-configsync.A.internal" in str(call.arguments):
            raise TransientKafkaError("no answer", reason="KAFKA_TIMEOUT")

    read_again = shared.clusters["C"].intercept("list_offsets", refuse)
    await shared.refresh(shared.second)
    assert shared.rate == 1000.0
    read_again()
    await shared.refresh(shared.second)
    assert shared.rate == 1000.0


@pytest.mark.parametrize("shared", [2, 3], ids=["two processes", "divided processes"], indirect=True)
async def test_nothing_is_removed_that_a_flow_of_an_earlier_release_may_want(shared: SharedTarget) -> None:
    """Its owner has not stored what it wants."""
    registry = TopicPartition("mm2-configsync.B.internal", 0)
    async with shared.clusters["C"].writer() as writer:
        for key in (b'["wanted","acls 0"]', b'["wanted","quotas 0"]'):
            assert any(record.key == key for record in shared.clusters["C"].records(registry))
            await writer.append(registry, key=key, value=None)
    for standby in shared.standbys:
        await standby.passes.follow()
    shared.clear("A")
    await shared.refresh(shared.first)
    assert shared.acls == {BILLING}
    assert shared.rate == 1000.0


async def test_a_flow_that_shares_its_target_with_no_other_stores_nothing_for_others(tmp_path: Path) -> None:
    clock = FakeClock()
    clusters = {name: FakeCluster(name, clock=clock, authorizer=True) for name in "ABC"}
    flow = process(tmp_path, clusters, clock)["A->C"]
    flow.claims = DesiredBindings({flow.config.flow}, {flow.config.flow})
    flow.restart()
    await flow.refresh(SCOPES)
    records = clusters["C"].records(TopicPartition("mm2-configsync.A.internal", 0))
    assert not [record for record in records if (record.key or b"").startswith(b'["wanted"')]


@pytest.mark.parametrize("processes", [1, 2])
async def test_a_source_without_an_authorizer_keeps_no_acl_of_another_flow(
    tmp_path: Path, processes: int
) -> None:
    clock = FakeClock()
    clusters = {name: FakeCluster(name, clock=clock, authorizer=name != "B") for name in "ABC"}
    clusters["A"].acls = {BILLING}
    clusters["A"].set_group("billing")
    first = process(tmp_path, clusters, clock)
    other = first if processes == 1 else process(tmp_path, clusters, clock)

    async def both() -> None:
        await first["A->C"].refresh(SCOPES)
        await other["B->C"].refresh(SCOPES)
        if first is not other:
            await first["B->C"].passes.follow()
            await other["A->C"].passes.follow()

    await both()
    assert clusters["C"].acls == {BILLING}
    clusters["A"].acls = set()
    await both()
    await both()
    assert clusters["C"].acls == set()


@pytest.mark.parametrize("shared", [3], ids=["divided processes"], indirect=True)
async def test_nothing_is_removed_while_the_registry_of_another_process_cannot_be_read(
    shared: SharedTarget,
) -> None:
    registry = TopicPartition("mm2-configsync.B.internal", 0)
    async with shared.clusters["C"].writer() as writer:
        await writer.append(registry, key=b'["flow"]', value=b'{"version":99}')
    shared.clear("A")
    await shared.refresh(shared.first)
    assert shared.acls == {BILLING}
    assert shared.rate == 1000.0


def test_a_process_knows_the_flows_of_others(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(FILE + "C->A.enabled = true\n")
    here = load(file, environ={}, only_flows=[Flow("A", "C")])
    assert [str(each.flow) for each in flows_of_others(here)] == ["B->C", "C->A"]
    assert flows_of_others(load(file, environ={})) == ()
