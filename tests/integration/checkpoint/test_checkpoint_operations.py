"""Moves and watches by their commands: killed services, fences, topics that may not be read."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from integration.checkpoint.checkpoint_rig import Ends, MirrorRig, Told, mirror, twinlog, write
from integration.conftest import MIRROR, READER, WRITER, GuardedPair
from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import AclBinding, CommittedOffset, KafkaCluster
from twinlog.local.port_lease import PortLease
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin
from twinlog.testing.service_process import ServiceProcess, run_service


def at(service: ServiceProcess) -> tuple[str, str]:
    return "--endpoint", f"checkpoint={service.endpoint}"


async def ready(flow: MirrorRig, service: ServiceProcess) -> None:
    """The group is translated."""

    async def has_rows() -> bool:
        return any(row.HasField("downstream_offset") for row in await flow.rows(service))

    await eventually(has_rows)


async def test_a_run_whose_service_is_killed_goes_on_when_it_is_asked_for_again(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    async with mirror(Ends.of(kafka_pair)) as flow:
        await flow.fill(range(50), ahead=7)
        await flow.sync(0, 7)
        await flow.commit(40)
        await write(flow.source, flow.origin, range(50, 60))
        async with run_service("checkpoint", tmp_path, flow.properties) as service:
            await ready(flow, service)

            async def waits_for_the_copy() -> dict[str, Any] | None:
                told = await twinlog("failover", "plan", flow.flow, *at(service))
                last = told.documents[0]["last"] if told.documents else None
                return last if last is not None and "FINAL_OFFSETS" in last["steps"] else None

            async with asyncio.TaskGroup() as tasks:
                cut = tasks.create_task(
                    twinlog("failover", "run", "--yes", flow.flow, *at(service)), name="run"
                )
                last = await eventually(waits_for_the_copy)
                await service.kill()
            assert not last["finished"]
            assert cut.result().code == 1
            assert "checkpoint" in cut.result().errors
        assert await flow.committed_on_target() is None
        await write(flow.target, flow.copy, range(50, 60))
        async with run_service("checkpoint", tmp_path, flow.properties) as service:
            await ready(flow, service)
            report = last_document(await twinlog("failover", "run", "--yes", flow.flow, *at(service)))
            assert report["run_id"] == last["run_id"]
            assert report["already_done"] is False
            assert [entry["verdict"] for entry in report["plan"]["partitions"]] == ["EXACT"]
            assert await flow.committed_on_target() == 47
            again = last_document(await twinlog("failover", "run", "--yes", flow.flow, *at(service)))
            assert (again["run_id"], again["already_done"]) == (last["run_id"], True)


async def test_with_the_source_gone_a_restarted_service_moves_groups_by_its_checkpoints(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    async with mirror(Ends.of(kafka_pair)) as flow:
        await flow.fill(range(50), ahead=7)
        await flow.sync(0, 7)
        await flow.commit(40)
        async with run_service("checkpoint", tmp_path, flow.properties) as service:
            await eventually(flow.checkpoints)
            await service.kill()
        gone = flow.properties.replace(kafka_pair.a.bootstrap_servers, "127.0.0.1:1")
        async with run_service("checkpoint", tmp_path, gone) as service:

            async def only_the_loss_stands_against_it() -> bool:
                (plan,) = (await twinlog("failover", "plan", flow.flow, *at(service))).documents
                assert not plan["from_reachable"]
                assert plan["records_not_copied"] is None
                return [blocker for blocker in plan["blockers"] if "--accept-loss" not in blocker] == []

            await eventually(only_the_loss_stands_against_it)
            refused = await twinlog("failover", "run", "--yes", flow.flow, *at(service))
            assert refused.code == 1
            assert f"{flow.a} does not answer" in refused.errors
            assert await flow.committed_on_target() is None
            report = last_document(
                await twinlog("failover", "run", "--yes", flow.flow, "--accept-loss", *at(service))
            )
            assert [entry["verdict"] for entry in report["plan"]["partitions"]] == ["FLOOR"]
        assert await flow.committed_on_target() == 47


async def test_group_deletes_are_synced_when_enabled_unless_the_target_group_has_other_offsets(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    syncing = "sync.group.offsets.enabled = true"
    async with mirror(Ends.of(kafka_pair), syncing) as flow:
        gone, kept, stays = (f"{flow.group}-{name}" for name in ("gone", "kept", "stays"))
        await flow.fill(range(50), ahead=7)
        await flow.sync(0, 7)
        for group in (gone, kept, stays):
            await flow.commit(40, group=group)

        async def on_target() -> dict[str, int | None]:
            return {group: await flow.committed_on_target(group) for group in (gone, kept, stays)}

        async def all_synced() -> bool:
            return set((await on_target()).values()) == {47}

        async with run_service("checkpoint", tmp_path, flow.properties) as service:
            await eventually(all_synced)
            own = {TopicPartition(flow.checkpoints_topic, 0): CommittedOffset(next_offset=1)}
            await retry_admin(lambda: flow.target.alter_group_offsets(kept, own))
            await retry_admin(lambda: flow.source.delete_groups([gone, kept]))
            await flow.commit(45, group=stays)

            async def only_one_is_listed() -> bool:
                told = await twinlog("groups", *at(service))
                return {row["group"] for row in told.documents[0]["groups"]} == {stays}

            async def all_are_there() -> bool:
                return await on_target() == {gone: 47, kept: 47, stays: 52}

            await eventually(only_one_is_listed)
            await eventually(all_are_there)
        keys = "twinlog.sync.group.deletes"
        deleting = f"{flow.properties}\n{keys}.enabled = true\n{keys}.grace.seconds = 0"
        async with run_service("checkpoint", tmp_path, deleting):

            async def is_gone() -> bool:
                return gone not in await flow.target.list_groups()

            await eventually(is_gone)
        assert await on_target() == {gone: None, kept: 47, stays: 52}


async def test_commands_say_what_is_wrong(kafka_pair: KafkaPair, tmp_path: Path) -> None:
    async with mirror(Ends.of(kafka_pair)) as flow:
        await flow.fill(range(20))
        await flow.sync(0, 0)
        await flow.commit(10)
        offsets = tmp_path / "offsets.csv"
        offsets.write_text(f"{flow.topic},0,5\n{flow.topic},zero,5\n{flow.topic},0,15\n")
        moved = tmp_path / "moved.csv"
        async with run_service("checkpoint", tmp_path, flow.properties) as service:
            await ready(flow, service)

            async def refused(*arguments: str, code: int = 1) -> Told:
                told = await twinlog(*arguments, *at(service))
                assert told.code == code, told
                return told

            assert flow.flow in (await refused("failover", "run", "--yes", "x->y")).errors
            nobody = await refused("failover", "run", "--yes", flow.flow, "--group", "nobody")
            assert "nobody" in nobody.errors
            assert "MOVE_BLOCKED" in nobody.errors
            assert "authorizer" in (await refused("failover", "run", "--yes", flow.flow, "--fence")).errors
            assert (await refused("groups", "--group", "nobody")).documents[0]["groups"] == []
            unknown = await refused("translate", "missing:0:5", f"{flow.topic}:0:21")
            assert [answer["verdict"] for answer in unknown.documents] == ["NOT_REPLICATED", "PAST_END"]
            assert "orders:3:1234" in (await refused("translate", "orders", code=2)).errors
            partly = await refused("translate", "--from", str(offsets))
            assert f"{offsets}:2: '{flow.topic}','zero'" in partly.errors
            assert [answer["translated_offset"] for answer in partly.documents] == [5, 15]
            await refused("translate", "--from", str(offsets), "--to", str(moved))
            assert not moved.exists()
            told = await refused("explain", "group", "nobody", code=0)
            assert told.documents[0]["translated"] is False
        assert await flow.committed_on_target() is None


async def test_a_watch_goes_on_through_a_restart_of_the_service(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    with fixed_address() as endpoint:
        async with mirror(Ends.of(kafka_pair)) as flow:
            await flow.fill(range(50))
            await flow.sync(0, 0)
            await flow.commit(40)
            listen = ("--listen", endpoint)
            async with run_service("checkpoint", tmp_path, flow.properties, arguments=listen) as service:
                await ready(flow, service)
                async with watching("--endpoint", f"checkpoint={endpoint}", "--group", flow.group) as lines:
                    await lines.until(event="CHANGED", upstream_offset=40, verdict="EXACT")
                    await flow.commit(45)
                    await lines.until(event="CHANGED", upstream_offset=45, downstream_offset=45)
                    await service.kill()
                    await lines.until(event="LOST")
                    await flow.commit(48)
                    async with run_service(
                        "checkpoint", tmp_path, flow.properties, arguments=listen
                    ) as service:
                        await lines.until(event="CHANGED", upstream_offset=48, downstream_offset=48)


@contextmanager
def fixed_address() -> Iterator[str]:
    """An address that stays the same."""
    lease = PortLease(1)
    try:
        yield f"127.0.0.1:{lease.ports[0]}"
    finally:
        lease.release()


class Lines:
    """What a watching command prints, a document a line."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream

    async def until(self, **wanted: object) -> None:
        """Read until a document has these fields."""
        async with asyncio.timeout(120):
            while True:
                line = await self._stream.readline()
                assert line, f"the watch ended before {wanted}"
                document = json.loads(line)
                if wanted.items() <= document.items():
                    return


@asynccontextmanager
async def watching(*arguments: str) -> AsyncIterator[Lines]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "-m", "twinlog", "groups", "--watch", "-o", "json", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        yield Lines(process.stdout)
    finally:
        process.kill()
        await process.wait()


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
