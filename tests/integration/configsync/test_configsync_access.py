"""configsync between clusters with StandardAuthorizer: SASL/PLAIN on one, SCRAM on the other, rights that
are few.

The service's own users (READER on the source, WRITER on the target: ACLs of users are copied by name) hold
what `twinlog preflight --acls` asks for and no more; not even the right to elect an owner of the flow.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from integration.conftest import PASSWORD, READER, WRITER, GuardedPair
from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import AclBinding, ConfigChange, KafkaCluster, NewTopic, QuotaEntity
from twinlog.testing.brokers import eventually, retry_admin, unique_name
from twinlog.testing.service_process import CALL_SECONDS, ServiceProcess, run_service


def allow(operation: str, resource_type: str = "TOPIC", name: str = "*", *, user: str = READER) -> AclBinding:
    return AclBinding(
        resource_type=resource_type,
        resource_name="kafka-cluster" if resource_type == "CLUSTER" else name,
        pattern_type="LITERAL",
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission="ALLOW",
    )


SOURCE_RIGHTS = [
    allow("DESCRIBE"),
    allow("DESCRIBE_CONFIGS"),
    allow("DESCRIBE", "CLUSTER"),
]
TARGET_RIGHTS = [
    *(
        allow(operation, user=WRITER)
        for operation in ("CREATE", "DESCRIBE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "READ", "WRITE")
    ),
    *(
        allow(operation, "CLUSTER", user=WRITER)
        for operation in ("DESCRIBE", "ALTER", "DESCRIBE_CONFIGS", "IDEMPOTENT_WRITE")
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """Two guarded clusters under aliases of this test alone; `source` and `target` are super users'
    connections.
    """

    source: KafkaCluster
    target: KafkaCluster
    properties: Mapping[str, str]
    source_alias: str
    target_alias: str

    @property
    def flow(self) -> types_pb2.Flow:
        return types_pb2.Flow(source=self.source_alias, target=self.target_alias)

    def topic(self, name: str) -> str:
        return f"{self.source_alias}-{name}"

    def remote(self, name: str) -> str:
        return f"{self.source_alias}.{self.topic(name)}"

    async def create(self, name: str, configs: Mapping[str, str] | None = None) -> str:
        topic = NewTopic(
            name=self.topic(name), partition_count=1, replication_factor=1, configs=dict(configs or {})
        )
        await retry_admin(lambda: self.source.create_topics([topic]))
        return topic.name

    async def grant_on_source(self, *bindings: AclBinding) -> None:
        await retry_admin(lambda: self.source.create_acls(bindings))

    async def copied_acls(self) -> set[AclBinding]:
        """Bindings on the target that are about this test's flow, those of the service's own user left
        out.
        """
        bindings = await self.target.describe_acls()
        assert bindings is not None
        return {
            binding
            for binding in bindings
            if self.topic("") in binding.resource_name and READER not in binding.principal
        }


@pytest.fixture
async def rig(guarded: GuardedPair) -> AsyncIterator[Rig]:
    source_alias, target_alias = unique_name("east"), unique_name("west")
    properties = {
        "clusters": f"{source_alias}, {target_alias}",
        **{f"{source_alias}.{key}": value for key, value in guarded.a.client_properties(READER).items()},
        **{f"{target_alias}.{key}": value for key, value in guarded.b.client_properties(WRITER).items()},
        f"{source_alias}->{target_alias}.enabled": "true",
        f"{target_alias}->{source_alias}.emit.heartbeats.enabled": "false",
        "topics": f"{source_alias}-.*, {source_alias}-hidden",
        "replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "refresh.topics.interval.seconds": "0.5",
        "sync.topic.acls.interval.seconds": "0.5",
        "sync.topic.configs.interval.seconds": "0.5",
        "heartbeats.replication.enabled": "false",
        "twinlog.drain.seconds": "0",
    }
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(open_cluster("A", guarded.a.client_properties()))
        target = await stack.enter_async_context(open_cluster("B", guarded.b.client_properties()))
        await retry_admin(lambda: source.create_acls(SOURCE_RIGHTS))
        await retry_admin(lambda: target.create_acls(TARGET_RIGHTS))
        yield Rig(
            source=source,
            target=target,
            properties=properties,
            source_alias=source_alias,
            target_alias=target_alias,
        )


def text_of(properties: Mapping[str, str]) -> str:
    return "".join(f"{key} = {value}\n" for key, value in properties.items())


async def twinlog(service: ServiceProcess, *arguments: str) -> tuple[int, str, str]:
    """Run the command against the service: exit code, stdout, stderr."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from twinlog.cli import main; main()", *arguments),
        *("--endpoint", f"configsync={service.endpoint}"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def states(service: ServiceProcess) -> dict[str, tuple[int, str]]:
    answer = await ConfigSyncServiceStub(service.channel).ListTopics(
        pb2.ListTopicsRequest(), timeout=CALL_SECONDS
    )
    return {topic.source_topic: (topic.state, topic.reason) for topic in answer.topics}


async def test_an_unauthorised_topic_is_the_only_one_reported_and_heals(rig: Rig, tmp_path: Path) -> None:
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


async def test_a_config_that_the_target_refuses_holds_nothing_else_back(rig: Rig, tmp_path: Path) -> None:
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


async def test_mode_mm2_copies_what_mm2_copies_and_never_deletes(rig: Rig, tmp_path: Path) -> None:
    orders = await rig.create("orders")
    read = allow("READ", name=orders, user="alice")
    bindings = [
        read,
        allow("WRITE", name=orders, user="alice"),
        allow("ALL", name=orders, user="bob"),
        replace(allow("READ", name=orders, user="eve"), permission="DENY"),
        replace(allow("READ", name=f"{rig.source_alias}-o", user="carol"), pattern_type="PREFIXED"),
        allow("READ", "GROUP", f"{rig.source_alias}-group", user="alice"),
    ]
    await rig.grant_on_source(*bindings)
    remote = rig.remote("orders")
    wanted = {
        allow("READ", name=remote, user="alice"),
        allow("READ", name=remote, user="bob"),
        replace(allow("READ", name=remote, user="eve"), permission="DENY"),
    }
    async with run_service("configsync", tmp_path, text_of(rig.properties)) as service:

        async def copied() -> bool:
            return await rig.copied_acls() == wanted

        await eventually(copied)
        await retry_admin(lambda: rig.source.delete_acls([read]))
        code, out, _ = await twinlog(
            service, "plan", f"{rig.source_alias}->{rig.target_alias}", "--scope", "acls", "-o", "json"
        )
        assert code == 0
        (plan,) = json.loads(out)
        assert plan["change_count"] == 0
        assert any("never deletes" in action["rule"] for action in plan["actions"])
        assert await rig.copied_acls() == wanted


async def test_mode_read_only_follows_removals_and_leaves_foreign_acls(rig: Rig, tmp_path: Path) -> None:
    orders = await rig.create("orders")
    literal = allow("READ", name=orders, user="alice")
    prefixed = replace(allow("ALL", name=f"{rig.source_alias}-o", user="carol"), pattern_type="PREFIXED")
    group = allow("READ", "GROUP", f"{rig.source_alias}-group", user="alice")
    await rig.grant_on_source(literal, prefixed, group)
    foreign = allow("READ", name=rig.remote("orders"), user="operator")
    await retry_admin(lambda: rig.target.create_acls([foreign]))
    properties = {**rig.properties, "twinlog.sync.topic.acls.mode": "read-only"}
    copies = {
        allow("READ", name=rig.remote("orders"), user="alice"),
        allow("READ", name=rig.remote("orders"), user="carol"),
        group,
    }

    async def is_now(wanted: Collection[AclBinding]) -> bool:
        return await rig.copied_acls() == {*wanted, foreign}

    async with run_service("configsync", tmp_path, text_of(properties)) as service:
        await eventually(lambda: is_now(copies))
        code, out, err = await twinlog(service, "acls", f"{rig.source_alias}->{rig.target_alias}")
        assert code == 0, err
        (copied,) = [line for line in out.splitlines() if f"LITERAL TOPIC {orders} " in line]
        assert copied.startswith("IN_STEP")
        assert f"ALLOW User:alice READ on LITERAL TOPIC {rig.remote('orders')} from *  Twinlog" in copied
    await retry_admin(lambda: rig.source.delete_acls([literal, prefixed, group]))
    async with run_service("configsync", tmp_path, text_of(properties)) as service:
        await eventually(lambda: is_now([]))
        code, out, err = await twinlog(service, "acls", rig.target_alias, "-o", "json")
        assert code == 0, err
        about = [
            (entry["target"]["principal"], entry["state"], entry["made_by_twinlog"])
            for entry in json.loads(out)
            if entry["target"]["resource_name"] == rig.remote("orders")
            and READER not in entry["target"]["principal"]
        ]
        assert about == [("User:operator", "FOREIGN", False)]


async def test_mode_full_copies_writing_and_transactional_ids_and_says_what_it_leaves_out(
    rig: Rig, tmp_path: Path
) -> None:
    orders = await rig.create("orders")
    payments = await rig.create("payments")
    mark = rig.source_alias
    writing = allow("WRITE", name=orders, user="alice")
    everything = replace(allow("ALL", name=f"{mark}-pay", user="carol"), pattern_type="PREFIXED")
    denied = replace(allow("WRITE", name=payments, user="mallory"), permission="DENY")
    transactional = allow("WRITE", "TRANSACTIONAL_ID", f"{mark}-txn", user="alice")
    many_transactional = replace(
        allow("WRITE", "TRANSACTIONAL_ID", f"{mark}-many", user="alice"), pattern_type="PREFIXED"
    )
    group = allow("READ", "GROUP", f"{mark}-group", user="alice")
    of_cluster = allow("ALTER", "CLUSTER", user=f"{mark}-admin")
    granted = (writing, everything, denied, transactional, many_transactional, group, of_cluster)
    await rig.grant_on_source(*granted)
    properties = {**rig.properties, "twinlog.sync.topic.acls.mode": "full"}
    copies = {
        replace(writing, resource_name=rig.remote("orders")),
        allow("ALL", name=rig.remote("payments"), user="carol"),
        replace(denied, resource_name=rig.remote("payments")),
        transactional,
        group,
    }

    async def is_now(wanted: Collection[AclBinding]) -> bool:
        return await rig.copied_acls() == set(wanted)

    async with run_service("configsync", tmp_path, text_of(properties)) as service:
        await eventually(lambda: is_now(copies))
        flow = f"{rig.source_alias}->{rig.target_alias}"
        code, out, err = await twinlog(service, "acls", flow, "-o", "json")
        assert code == 0, err
        left_out = {
            (entry["source"]["resource_type"], entry["source"]["resource_name"]): entry["rule"]
            for entry in json.loads(out)
            if entry["state"] == "LEFT_OUT" and mark in str(entry["source"])
        }
        assert left_out[("CLUSTER", "kafka-cluster")] == "mode full does not copy ACLs of clusters"
        assert "grant it on the target" in left_out[("TRANSACTIONAL_ID", f"{mark}-many")]
        there = await rig.target.describe_acls()
        assert there is not None
        assert not [each for each in there if f"{mark}-admin" in each.principal], (
            "no right on the cluster itself"
        )
        await retry_admin(lambda: rig.source.delete_acls(granted))
        await eventually(lambda: is_now([]))


async def test_manual_mode_waits_for_apply(rig: Rig, tmp_path: Path) -> None:
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
