"""configsync with few rights: what it may not do is said of the one topic, and quotas and plans."""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from integration.configsync.access_rig import AccessRig, access_rig, allow, states, text_of, twinlog
from integration.conftest import PASSWORD, WRITER, GuardedPair
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import ConfigChange, KafkaCluster, QuotaEntity
from twinlog.testing.brokers import eventually, retry_admin, unique_name
from twinlog.testing.service_process import CALL_SECONDS, ServiceProcess, run_service


@pytest.fixture
async def rig(guarded: GuardedPair) -> AsyncIterator[AccessRig]:
    async with access_rig(guarded, {}) as opened:
        yield opened


async def test_an_unauthorised_topic_is_the_only_one_reported_and_heals(
    rig: AccessRig, tmp_path: Path
) -> None:
    orders, hidden = await rig.create("orders"), await rig.create("hidden")
    denial = replace(allow("DESCRIBE", name=hidden), permission="DENY")
    await rig.grant_on_source(denial)
    async with run_service("configsync", tmp_path, text_of(rig.properties)) as service:

        async def reported() -> bool:
            return await states(service) == {
                orders: (pb2.TOPIC_STATE_READY, ""),
                hidden: (pb2.TOPIC_STATE_WAITING, "TOPIC_UNAUTHORIZED"),
            }

        await eventually(reported)
        code, out, _ = await twinlog(service, "explain", "topic", hidden, "-o", "json")
        assert code == 0
        assert [answer["verdict"] for answer in json.loads(out)] == ["NOT_AUTHORIZED"]

        await retry_admin(lambda: rig.source.delete_acls([denial]))

        async def healed() -> bool:
            return (await states(service))[hidden] == (pb2.TOPIC_STATE_READY, "")

        await eventually(healed)
        assert PASSWORD not in service.log()
        assert '"works_on_alone": true' in service.log()


async def test_a_config_that_the_target_refuses_holds_nothing_else_back(
    rig: AccessRig, tmp_path: Path
) -> None:
    orders, users = await rig.create("orders"), await rig.create("users")
    refused = replace(allow("ALTER_CONFIGS", name=rig.remote("orders"), user=WRITER), permission="DENY")
    async with run_service("configsync", tmp_path, text_of(rig.properties)) as service:

        async def ready() -> bool:
            return await states(service) == dict.fromkeys((orders, users), (pb2.TOPIC_STATE_READY, ""))

        async def configs_reason() -> str:
            stub = ConfigSyncServiceStub(service.channel)
            (flow,) = (await stub.ListFlows(pb2.ListFlowsRequest(), timeout=CALL_SECONDS)).flows
            return next(scope.reason for scope in flow.scopes if scope.scope == "configs")

        async def retention() -> list[str]:
            remotes = [rig.remote("orders"), rig.remote("users")]
            entries = await rig.target.describe_topic_configs(remotes)
            return [
                next(entry.value or "" for entry in found if entry.name == "retention.ms")
                for name in remotes
                if not isinstance(found := entries[name], Exception)
            ]

        await eventually(ready)
        await retry_admin(lambda: rig.target.create_acls([refused]))
        shorter = [ConfigChange(name="retention.ms", value="3600000")]
        altered = await rig.source.alter_topic_configs({orders: shorter, users: shorter})
        assert set(altered.values()) == {None}

        async def only_one() -> bool:
            assert await states(service) == {
                orders: (pb2.TOPIC_STATE_READY, "TOPIC_UNAUTHORIZED"),
                users: (pb2.TOPIC_STATE_READY, ""),
            }
            return (
                await retention() == ["604800000", "3600000"] and await configs_reason() == "CHANGES_REFUSED"
            )

        await eventually(only_one)
        await retry_admin(lambda: rig.target.delete_acls([refused]))

        async def healed() -> bool:
            return await retention() == ["3600000"] * 2 and not await configs_reason()

        await eventually(healed)


async def test_quotas_follow_the_source_and_users_that_cannot_be_copied_are_listed(
    guarded: GuardedPair, tmp_path: Path
) -> None:
    """From the cluster with SCRAM users to the one without."""
    east, west = unique_name("east"), unique_name("west")
    alice, operator = (QuotaEntity((("user", unique_name(name)),)) for name in ("alice", "operator"))
    properties = {
        "clusters": f"{east}, {west}",
        **{f"{east}.{key}": value for key, value in guarded.b.client_properties().items()},
        **{f"{west}.{key}": value for key, value in guarded.a.client_properties().items()},
        f"{east}->{west}.enabled": "true",
        f"{west}->{east}.emit.heartbeats.enabled": "false",
        "topics": f"{east}-.*",
        "replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "refresh.topics.interval.seconds": "0.5",
        "sync.topic.acls.interval.seconds": "0.5",
        "twinlog.sync.client.quotas.enabled": "true",
        "twinlog.drain.seconds": "0",
    }
    async with (
        open_cluster("east", guarded.b.client_properties()) as source,
        open_cluster("west", guarded.a.client_properties()) as target,
        run_service("configsync", tmp_path, text_of(properties)) as service,
    ):

        async def put(
            cluster: KafkaCluster, changes: Mapping[QuotaEntity, Mapping[str, float | None]]
        ) -> None:
            await retry_admin(lambda: cluster.alter_client_quotas(changes))

        async def become(wanted: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
            async def are() -> bool:
                quotas = await target.describe_client_quotas()
                return {each: quotas[each] for each in (alice, operator) if each in quotas} == wanted

            await eventually(are)

        foreign = {operator: {"consumer_byte_rate": 7.0}}
        await put(target, foreign)
        await put(source, {alice: {"producer_byte_rate": 1000.0, "request_percentage": 50.0}})
        await become({alice: {"producer_byte_rate": 1000.0, "request_percentage": 50.0}, **foreign})
        await put(target, {alice: {"producer_byte_rate": 5.0}})
        await become({alice: {"producer_byte_rate": 1000.0, "request_percentage": 50.0}, **foreign})
        await put(source, {alice: {"producer_byte_rate": None}})
        await become({alice: {"request_percentage": 50.0}, **foreign})
        await put(source, {alice: {"request_percentage": None}})
        await become(foreign)

        code, out, err = await twinlog(service, "plan", f"{east}->{west}", "--scope", "acls", "--skips")
        assert code == 0, err
        assert WRITER in out
        assert "SCRAM passwords cannot be read: create the user on the target by hand" in out


async def test_manual_mode_waits_for_apply(rig: AccessRig, tmp_path: Path) -> None:
    await rig.create("orders", {"retention.ms": "3600000"})
    flow = f"{rig.source_alias}->{rig.target_alias}"
    properties = {**rig.properties, "twinlog.sync.mode": "manual"}

    async def planned(service: ServiceProcess) -> dict[str, Any]:
        code, out, err = await twinlog(
            service, "plan", flow, "--scope", "topics", "--scope", "configs", "-o", "json"
        )
        assert code == 0, err
        (plan,) = json.loads(out)
        assert isinstance(plan, dict)
        return plan

    async with run_service("configsync", tmp_path, text_of(properties)) as service:
        first = await planned(service)
        assert [action["text"] for action in first["actions"] if action["kind"] != "SKIP"] == [
            (
                f"CREATE {rig.remote('orders')} partitions=1 replication.factor=1: "
                "selected on the source, absent on the target"
            )
        ]
        code, out, _ = await twinlog(service, "plan", flow, "--check")
        assert code == 1
        assert f"+ CREATE {rig.remote('orders')}" in out

        larger = [ConfigChange(name="retention.ms", value="7200000")]
        changed = await rig.source.alter_topic_configs({rig.topic("orders"): larger})
        assert changed == {rig.topic("orders"): None}
        code, _, err = await twinlog(service, "apply", flow, "--plan", first["plan_id"])
        assert code == 1
        assert "PLAN_STALE" in err or "PLAN_UNKNOWN" in err
        assert rig.remote("orders") not in await rig.target.list_topics()

        second = await planned(service)
        code, out, err = await twinlog(service, "apply", flow, "--plan", second["plan_id"], "-o", "json")
        assert code == 0, err
        assert len(json.loads(out)["applied"]) == 1
        assert (await planned(service))["change_count"] == 0
        code, out, _ = await twinlog(service, "explain", "topic", rig.topic("orders"))
        assert code == 0
        assert f"replicated as {rig.remote('orders')}" in out
