"""configsync between clusters with StandardAuthorizer: SASL/PLAIN on one, SCRAM on the other, rights that
are few.

The service's own users hold what `docs/security.md` asks for and no more.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import AclBinding, ConfigChange, KafkaCluster, NewTopic
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec, SaslMechanism, Security
from twinlog.testing.brokers import eventually, start_clusters, stop_clusters, unique_name
from twinlog.testing.service_process import ServiceProcess, run_service

CALL_SECONDS = 10.0
READER, WRITER = "twinlog-reader", "twinlog-writer"
"""The service's own users: one on the source, one on the target, since ACLs of users are copied by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    a: BlockingCluster
    b: BlockingCluster


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    """A: SASL/PLAIN, B: SCRAM-SHA-512; both with an authorizer, and a user of the service without rights
    yet.
    """

    def spec(name: str, mechanism: SaslMechanism, user: str) -> ClusterSpec:
        security = Security(mechanisms=(mechanism,), users={user: "not-to-be-seen"}, authorizer=True)
        return ClusterSpec(name=name, security=security)

    clusters = start_clusters(
        spec("A", SaslMechanism.PLAIN, READER), spec("B", SaslMechanism.SCRAM_SHA_512, WRITER)
    )
    yield Guarded(a=clusters[0], b=clusters[1])
    stop_clusters(clusters)


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
class Estate:
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
        assert await self.source.create_topics([topic]) == {topic.name: None}
        return topic.name

    async def grant_on_source(self, *bindings: AclBinding) -> None:
        assert set((await self.source.create_acls(bindings)).values()) <= {None}

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
async def estate(guarded: Guarded) -> AsyncIterator[Estate]:
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
        assert set((await source.create_acls(SOURCE_RIGHTS)).values()) <= {None}
        assert set((await target.create_acls(TARGET_RIGHTS)).values()) <= {None}
        yield Estate(
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


async def test_an_unauthorised_topic_is_the_only_one_reported_and_heals(
    estate: Estate, tmp_path: Path
) -> None:
    orders, hidden = await estate.create("orders"), await estate.create("hidden")
    denial = replace(allow("DESCRIBE", name=hidden), permission="DENY")
    await estate.grant_on_source(denial)
    async with run_service("configsync", tmp_path, text_of(estate.properties)) as service:

        async def reported() -> bool:
            return await states(service) == {
                orders: (pb2.TOPIC_STATE_READY, ""),
                hidden: (pb2.TOPIC_STATE_WAITING, "TOPIC_UNAUTHORIZED"),
            }

        await eventually(reported)
        code, out, _ = await twinlog(service, "explain", "topic", hidden, "-o", "json")
        assert code == 0
        assert [answer["verdict"] for answer in json.loads(out)] == ["NOT_AUTHORIZED"]

        assert set((await estate.source.delete_acls([denial])).values()) == {None}

        async def healed() -> bool:
            return (await states(service))[hidden] == (pb2.TOPIC_STATE_READY, "")

        await eventually(healed)
        assert "not-to-be-seen" not in service.log()


async def test_mode_mm2_copies_what_mm2_copies_and_never_deletes(estate: Estate, tmp_path: Path) -> None:
    orders = await estate.create("orders")
    read = allow("READ", name=orders, user="alice")
    bindings = [
        read,
        allow("WRITE", name=orders, user="alice"),
        allow("ALL", name=orders, user="bob"),
        replace(allow("READ", name=orders, user="eve"), permission="DENY"),
        replace(allow("READ", name=f"{estate.source_alias}-o", user="carol"), pattern_type="PREFIXED"),
        allow("READ", "GROUP", f"{estate.source_alias}-group", user="alice"),
    ]
    await estate.grant_on_source(*bindings)
    remote = estate.remote("orders")
    wanted = {
        allow("READ", name=remote, user="alice"),
        allow("READ", name=remote, user="bob"),
        replace(allow("READ", name=remote, user="eve"), permission="DENY"),
    }
    async with run_service("configsync", tmp_path, text_of(estate.properties)) as service:

        async def copied() -> bool:
            return await estate.copied_acls() == wanted

        await eventually(copied)
        assert set((await estate.source.delete_acls([read])).values()) == {None}
        code, out, _ = await twinlog(
            service, "plan", f"{estate.source_alias}->{estate.target_alias}", "--scope", "acls", "-o", "json"
        )
        assert code == 0
        (plan,) = json.loads(out)
        assert plan["change_count"] == 0
        assert any("never deletes" in action["rule"] for action in plan["actions"])
        assert await estate.copied_acls() == wanted


async def test_mode_read_only_follows_removals_and_leaves_foreign_acls(
    estate: Estate, tmp_path: Path
) -> None:
    orders = await estate.create("orders")
    literal = allow("READ", name=orders, user="alice")
    prefixed = replace(allow("ALL", name=f"{estate.source_alias}-o", user="carol"), pattern_type="PREFIXED")
    group = allow("READ", "GROUP", f"{estate.source_alias}-group", user="alice")
    await estate.grant_on_source(literal, prefixed, group)
    foreign = allow("READ", name=estate.remote("orders"), user="operator")
    assert set((await estate.target.create_acls([foreign])).values()) == {None}
    properties = {**estate.properties, "twinlog.sync.topic.acls.mode": "read-only"}
    copies = {
        allow("READ", name=estate.remote("orders"), user="alice"),
        replace(allow("READ", name=estate.remote("o"), user="carol"), pattern_type="PREFIXED"),
        group,
    }

    async def is_now(wanted: Collection[AclBinding]) -> bool:
        return await estate.copied_acls() == {*wanted, foreign}

    async with run_service("configsync", tmp_path, text_of(properties)):
        await eventually(lambda: is_now(copies))
    assert set((await estate.source.delete_acls([literal, prefixed, group])).values()) == {None}
    async with run_service("configsync", tmp_path, text_of(properties)) as service:
        await eventually(lambda: is_now([]))
        stub = ConfigSyncServiceStub(service.channel)
        listed = await stub.ListAcls(pb2.ListAclsRequest(flow=estate.flow), timeout=CALL_SECONDS)
        about = [
            entry.state for entry in listed.entries if entry.target.resource_name == estate.remote("orders")
        ]
        assert about == [pb2.ACL_STATE_FOREIGN]


async def test_manual_mode_waits_for_apply(estate: Estate, tmp_path: Path) -> None:
    await estate.create("orders", {"retention.ms": "3600000"})
    flow = f"{estate.source_alias}->{estate.target_alias}"
    properties = {**estate.properties, "twinlog.sync.mode": "manual"}

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
                f"CREATE {estate.remote('orders')} partitions=1 replication.factor=1: "
                "selected on the source, absent on the target"
            )
        ]
        code, out, _ = await twinlog(service, "plan", flow, "--check")
        assert code == 1
        assert f"+ CREATE {estate.remote('orders')}" in out

        larger = [ConfigChange(name="retention.ms", value="7200000")]
        changed = await estate.source.alter_topic_configs({estate.topic("orders"): larger})
        assert changed == {estate.topic("orders"): None}
        code, _, err = await twinlog(service, "apply", flow, "--plan", first["plan_id"])
        assert code == 1
        assert "PLAN_STALE" in err or "PLAN_UNKNOWN" in err
        assert estate.remote("orders") not in await estate.target.list_topics()

        second = await planned(service)
        code, out, err = await twinlog(service, "apply", flow, "--plan", second["plan_id"], "-o", "json")
        assert code == 0, err
        assert len(json.loads(out)["applied"]) == 1
        assert (await planned(service))["change_count"] == 0
        code, out, _ = await twinlog(service, "explain", "topic", estate.topic("orders"))
        assert code == 0
        assert f"replicated as {estate.remote('orders')}" in out
