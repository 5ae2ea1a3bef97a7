"""Moves and watches by their commands: killed services, fences, topics that may not be read."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from integration.checkpoint.checkpoint_rig import Ends, MirrorRig, Told, mirror, twinlog, write
from integration.conftest import MIRROR, READER, WRITER, GuardedPair
from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import AclBinding, KafkaCluster
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually, retry_admin
from twinlog.testing.service_process import ServiceProcess, run_service


def at(service: ServiceProcess) -> tuple[str, str]:
    return "--endpoint", f"checkpoint={service.endpoint}"


async def ready(flow: MirrorRig, service: ServiceProcess) -> None:
    """The group is translated."""

    async def has_rows() -> bool:
        return any(row.HasField("downstream_offset") for row in await flow.rows(service))

    await eventually(has_rows)


# ----------------------------------------------------------------------------------- clusters with ACLs


def allow(operation: str, resource_type: str, name: str, user: str = MIRROR) -> AclBinding:
    return AclBinding(
        resource_type=resource_type,
        resource_name=name,
        pattern_type="LITERAL",
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission="ALLOW",
    )


@asynccontextmanager
async def guarded_mirror(guarded: GuardedPair) -> AsyncIterator[MirrorRig]:
    """The service comes to A as a user with few rights, the application as another."""
    admin = Ends(a=guarded.a.client_properties(), b=guarded.b.client_properties())
    service = replace(admin, a=guarded.a.client_properties(MIRROR))
    async with mirror(admin, service=service) as flow:
        rights = [
            *(allow(operation, "CLUSTER", "kafka-cluster") for operation in ("DESCRIBE", "ALTER")),
            *(allow("READ", "TOPIC", topic) for topic in (flow.topic, flow.syncs_topic)),
            allow("WRITE", "TOPIC", flow.syncs_topic),
            allow("READ", "GROUP", flow.group),
            *(allow("WRITE", "TOPIC", flow.topic, user) for user in (READER, WRITER)),
        ]
        await retry_admin(lambda: flow.source.create_acls(rights))
        try:
            yield flow
        finally:
            await retry_admin(lambda: flow.source.delete_acls(rights))


async def test_a_fence_and_granted_rights_hold_until_the_move_back_and_the_fence_not_for_twinlog(
    guarded: GuardedPair, tmp_path: Path
) -> None:
    application, moved = guarded.a.client_properties(READER), guarded.b.client_properties(WRITER)
    async with (
        guarded_mirror(guarded) as flow,
        open_cluster("a", application) as writer,
        open_cluster("b", moved) as writer_there,
    ):
        await flow.fill(range(50), ahead=7)
        await flow.sync(0, 7)
        await flow.commit(40)
        await eventually(lambda: may_write(writer, flow.origin))
        await write(flow.target, flow.copy, range(50, 51))
        async with run_service("checkpoint", tmp_path, flow.properties) as service:
            await ready(flow, service)

            async def shut_out() -> bool:
                # A new producer without the right to write anywhere is refused for the cluster.
                return await write_problem(writer, flow.origin) in UNAUTHORIZED

            async def shut_out_there() -> bool:
                return await write_problem(writer_there, flow.copy) in UNAUTHORIZED

            await eventually(shut_out_there)
            asked = ("--fence", "--grant-write")
            told = await twinlog("failover", "run", "--yes", flow.flow, *asked, *at(service))
            report = last_document(told)
            assert sum(WRITER in grant for grant in report["plan"]["write_grants"]) == 1
            assert report["plan"]["fenced_topics"] == [flow.topic]
            assert report["plan"]["records_not_copied"] == 0
            assert await flow.committed_on_target() == 47
            await eventually(shut_out)
            await eventually(lambda: may_write(writer_there, flow.copy))
            async with open_cluster("a", guarded.a.client_properties(MIRROR)) as as_twinlog:
                await replace(flow, source=as_twinlog).sync(50, 57)
            # The group has not read what was written into the copy, and A does not have it.
            back = ("failback", "run", "--yes", flow.flow, *at(service))
            assert (await twinlog(*back)).code == 1
            last_document(await twinlog(*back, "--accept-loss"))
            await eventually(lambda: may_write(writer, flow.origin))
            await eventually(shut_out_there)


async def test_a_topic_of_offset_syncs_that_may_not_be_read_is_named_and_heals(
    guarded: GuardedPair, tmp_path: Path
) -> None:
    async with guarded_mirror(guarded) as flow:
        await flow.fill(range(50))
        await flow.sync(0, 0)
        await flow.commit(40)
        denial = replace(allow("READ", "TOPIC", flow.syncs_topic), permission="DENY")
        await retry_admin(lambda: flow.source.create_acls([denial]))
        async with run_service("checkpoint", tmp_path, flow.properties) as service:

            async def told() -> bool:
                (document,) = (await twinlog("groups", *at(service))).documents
                (state,) = document["flows"]
                assert flow.syncs_topic in (state["obstacle"] or "")
                assert [row["verdict"] for row in document["groups"]] == ["SOURCE_UNREADABLE"]
                return not state["ready"]

            await eventually(told)
            for arguments in (
                ("translate", f"{flow.topic}:0:40"),
                ("failover", "run", "--yes", flow.flow),
            ):
                refused = await twinlog(*arguments, *at(service))
                assert refused.code == 1
                assert flow.syncs_topic in refused.errors
            assert await flow.checkpoints() == []
            assert await flow.committed_on_target() is None
            await retry_admin(lambda: flow.source.delete_acls([denial]))
            await ready(flow, service)


UNAUTHORIZED = ("TOPIC_UNAUTHORIZED", "CLUSTER_UNAUTHORIZED")


async def write_problem(cluster: KafkaCluster, partition: TopicPartition) -> str | None:
    """Why the application cannot write; None when it can."""
    try:
        await write(cluster, partition, range(50, 51))
    except KafkaError as error:
        return error.reason
    return None


async def may_write(cluster: KafkaCluster, partition: TopicPartition) -> bool:
    return await write_problem(cluster, partition) is None


def last_document(told: Told) -> Any:
    assert told.code == 0, told.errors
    return told.documents[-1]
