"""Client quotas through a flow's passes, and users that nobody can copy."""

from pathlib import Path

import pytest

from twinlog.errors import FatalKafkaError
from twinlog.kafka.ports import QuotaEntity
from twinlog.model import Flow
from twinlog.testing.fakes.cluster import Call
from twinlog_configsync.api.messages import action_message
from twinlog_configsync.model.actions import SetQuota
from twinlog_configsync.model.memory import quota_ids
from twinlog_configsync.model.records import RecordKey, StoredKind, quota_key
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.desired import DesiredBindings
from unit.configsync.configsync_rig import ConfigSyncRig, make_flow

ALICE = QuotaEntity((("user", "alice"),))
DEFAULT_CLIENT = QuotaEntity((("client-id", None),))
ADDRESS = QuotaEntity((("ip", "10.0.0.1"),))
QUOTAS = [Scope.TOPICS, Scope.QUOTAS]


@pytest.fixture
def flow(tmp_path: Path) -> ConfigSyncRig:
    flow = make_flow(tmp_path, {"twinlog.sync.client.quotas.enabled": "true"})
    flow.source.quotas[ALICE.parts] = {"producer_byte_rate": 1000.0}
    return flow


def test_quotas_are_not_synced_unless_asked_for(tmp_path: Path) -> None:
    assert Scope.QUOTAS not in make_flow(tmp_path).config.rules.intervals_seconds


async def test_the_sources_quotas_are_set_and_those_of_addresses_are_not(flow: ConfigSyncRig) -> None:
    flow.source.quotas[DEFAULT_CLIENT.parts] = {"request_percentage": 50.0}
    flow.source.quotas[ADDRESS.parts] = {"connection_creation_rate": 5.0}
    await flow.refresh(QUOTAS)
    assert flow.target.quotas == {
        ALICE.parts: {"producer_byte_rate": 1000.0},
        DEFAULT_CLIENT.parts: {"request_percentage": 50.0},
    }
    plan, _ = await flow.commands.preview([Scope.QUOTAS])
    assert plan.changes == ()
    assert [str(action) for action in plan.actions] == [
        "SKIP QUOTA ip 10.0.0.1 connection_creation_rate: quotas of addresses are not copied"
    ]


async def test_what_was_set_is_taken_away_with_the_sources_and_the_targets_own_stays(
    flow: ConfigSyncRig,
) -> None:
    flow.target.quotas[ALICE.parts] = {"consumer_byte_rate": 7.0}
    await flow.refresh(QUOTAS)
    flow.restart()
    flow.source.quotas.clear()
    await flow.refresh(QUOTAS)
    assert flow.target.quotas == {ALICE.parts: {"consumer_byte_rate": 7.0}}


async def test_a_change_on_the_target_is_reverted_as_drift(flow: ConfigSyncRig) -> None:
    await flow.refresh(QUOTAS)
    flow.target.quotas[ALICE.parts]["producer_byte_rate"] = 5.0
    await flow.refresh(QUOTAS)
    assert flow.target.quotas[ALICE.parts] == {"producer_byte_rate": 1000.0}
    assert flow.sync.status.scopes[Scope.QUOTAS].drift_reverted == 1
    flow.source.quotas[ALICE.parts]["producer_byte_rate"] = 2000.0
    await flow.refresh(QUOTAS)
    assert flow.target.quotas[ALICE.parts] == {"producer_byte_rate": 2000.0}
    assert flow.sync.status.scopes[Scope.QUOTAS].drift_reverted == 1


async def test_quotas_that_cannot_be_read_stop_nothing_else(flow: ConfigSyncRig) -> None:
    flow.source.add_topic("orders")

    def refuse(_call: Call) -> None:
        raise FatalKafkaError("the broker is too old", reason="UNSUPPORTED_VERSION", code=35)

    flow.source.intercept("describe_client_quotas", refuse)
    await flow.refresh(QUOTAS)
    assert "A.orders" in flow.target.topics
    assert flow.sync.status.scopes[Scope.QUOTAS].reason == "UNSUPPORTED_VERSION"


def test_of_two_flows_that_want_a_quota_the_first_by_name_has_it() -> None:
    claims = DesiredBindings(set(), set())
    quota = (ALICE, "producer_byte_rate")
    claims.claim_quotas(Flow("A", "C"), quota_ids({quota}))
    claims.claim_quotas(Flow("B", "C"), quota_ids({quota}))
    assert claims.quota_owner(Flow("A", "C"), quota) is None
    assert claims.quota_owner(Flow("B", "C"), quota) == Flow("A", "C")
    assert claims.quota_owner(Flow("B", "D"), quota) is None


def with_flow(flow: ConfigSyncRig, other: Flow) -> DesiredBindings:
    """Start the process again, with another flow that syncs quotas."""
    flow.claims = DesiredBindings(set(), {flow.config.flow, other})
    flow.restart()
    return flow.claims


@pytest.mark.parametrize("other", [Flow("0", "B"), Flow("C", "B")])
async def test_no_flow_removes_a_quota_that_another_one_into_its_target_wants(
    flow: ConfigSyncRig, other: Flow
) -> None:
    """Whichever of the two has the first name: the other one set no quota that was there already."""
    await flow.refresh(QUOTAS)
    claims = with_flow(flow, other)
    flow.source.quotas.clear()
    await flow.refresh(QUOTAS)
    assert flow.target.quotas == {ALICE.parts: {"producer_byte_rate": 1000.0}}, "it may want it"
    claims.claim_quotas(other, quota_ids({(ALICE, "producer_byte_rate")}))
    await flow.refresh(QUOTAS)
    assert flow.target.quotas == {ALICE.parts: {"producer_byte_rate": 1000.0}}, "it wants it"
    plan, _ = await flow.commands.preview([Scope.QUOTAS])
    (skipped,) = plan.actions
    assert skipped.rule == "the source no longer has it, but another flow into this target needs it"
    claims.claim_quotas(other, frozenset())
    await flow.refresh(QUOTAS)
    assert flow.target.quotas == {}, "the flow that set it removes it once nobody wants it"


async def test_a_flow_that_does_not_sync_quotas_or_has_another_target_keeps_none(flow: ConfigSyncRig) -> None:
    await flow.refresh(QUOTAS)
    claims = with_flow(flow, Flow("C", "B"))
    claims.follow(Flow("C", "B"), acls=True, quotas=False)
    claims.follow(Flow("C", "D"), acls=True, quotas=True)
    flow.source.quotas.clear()
    await flow.refresh(QUOTAS)
    assert flow.target.quotas == {}


async def test_users_whose_passwords_cannot_be_copied_are_listed(flow: ConfigSyncRig) -> None:
    flow.source.kafka.scram_users = {"alice": {1: 4096, 2: 4096}, "bob": {2: 4096}}
    flow.target.kafka.scram_users = {"alice": {2: 4096}}
    plan, _ = await flow.commands.preview([Scope.ACLS])
    remedy = "SCRAM passwords cannot be read: create the user on the target by hand"
    assert [str(action) for action in plan.actions] == [
        f"SKIP USER alice (SCRAM-SHA-256): {remedy}",
        f"SKIP USER bob (SCRAM-SHA-512): {remedy}",
    ]


def test_a_quota_is_shown_with_every_digit_and_its_user_first() -> None:
    entity = QuotaEntity((("client-id", None), ("user", "alice")))
    action = SetQuota(
        entity=entity, key="producer_byte_rate", before=42.5, value=1234567.0, rule="set on source"
    )
    assert str(action) == (
        "SET QUOTA user alice, client-id <default> producer_byte_rate 42.5 → 1234567: set on source"
    )
    message = action_message(action)
    assert (message.entity, message.before, message.after) == (
        "user alice, client-id <default>",
        "42.5",
        "1234567",
    )


def test_the_key_of_a_record_does_not_follow_the_words() -> None:
    entity = QuotaEntity((("client-id", None), ("user", "alice")))
    assert quota_key(entity) == RecordKey(StoredKind.QUOTA, "client-id <default>, user alice")
