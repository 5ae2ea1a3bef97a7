"""A move belongs to the service: the terminal asks, follows, hangs up, stops it and gives it up."""

import asyncio
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from integration.checkpoint.checkpoint_rig import Ends, MirrorRig, mirror, twinlog, write
from integration.checkpoint.test_checkpoint_operations import at, ready
from twinlog.kafka.ports import CommittedOffset, NewTopic
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin
from twinlog.testing.service_process import ServiceProcess, run_service
from twinlog.wire import OffsetSync, encode_offset_sync


@asynccontextmanager
async def behind(pair: KafkaPair, directory: Path) -> AsyncIterator[tuple[MirrorRig, ServiceProcess]]:
    """A flow whose copy lacks ten records: a move waits for them."""
    async with mirror(Ends.of(pair)) as flow:
        await flow.fill(range(50), ahead=7)
        await flow.sync(0, 7)
        await flow.commit(40)
        await write(flow.source, flow.origin, range(50, 60))
        async with run_service("checkpoint", directory, flow.properties) as service:
            await ready(flow, service)
            yield flow, service


async def run_in_background(flow: MirrorRig, service: ServiceProcess) -> asyncio.subprocess.Process:
    """`twinlog failover run` that waits for the copy."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "twinlog", "failover", "run", "--yes", flow.flow, *at(service)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )

    async def drains() -> bool:
        run = (await status(flow, service))["run"]
        steps = [] if run is None or not run["running"] else run["steps"]
        return bool(steps) and steps[-1]["step"] == "DRAIN"

    await eventually(drains)
    return process


async def status(flow: MirrorRig, service: ServiceProcess) -> Any:
    told = await twinlog("failover", "status", flow.flow, *at(service))
    assert told.code == 0, told.errors
    return told.documents[0]


async def test_ctrl_c_leaves_the_run_to_the_service_and_it_is_followed_again(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    async with behind(kafka_pair, tmp_path) as (flow, service):
        process = await run_in_background(flow, service)
        process.send_signal(signal.SIGINT)
        _, errors = await process.communicate()
        assert process.returncode == 130
        assert f"failover attach '{flow.flow}'" in errors.decode()
        second = await twinlog("failover", "run", "--yes", flow.flow, *at(service))
        assert (second.code, "MOVE_IN_PROGRESS" in second.errors) == (1, True)
        assert (await status(flow, service))["run"]["running"]
        await write(flow.target, flow.copy, range(50, 60))
        followed = await twinlog("failover", "attach", flow.flow, *at(service))
        assert followed.code == 0, followed.errors
        assert followed.documents[-1]["complete"] is True
        assert await flow.committed_on_target() == 47


async def test_a_run_that_waits_is_cancelled_and_given_up(kafka_pair: KafkaPair, tmp_path: Path) -> None:
    async with behind(kafka_pair, tmp_path) as (flow, service):
        process = await run_in_background(flow, service)
        cancelled = await twinlog("failover", "cancel", flow.flow, *at(service))
        assert cancelled.code == 0, cancelled.errors
        _, errors = await process.communicate()
        assert (process.returncode, "MOVE_CANCELLED" in errors.decode()) == (1, True)
        assert not (await status(flow, service))["last"]["finished"]
        aborted = await twinlog("failover", "abort", flow.flow, *at(service))
        assert aborted.code == 0, aborted.errors
        assert (await status(flow, service))["last"]["aborted"]
        again = await twinlog("failover", "abort", flow.flow, *at(service))
        assert (again.code, "NOTHING_TO_ABORT" in again.errors) == (1, True)
        assert await flow.committed_on_target() is None


async def test_what_is_not_copied_is_named_with_its_cause(kafka_pair: KafkaPair, tmp_path: Path) -> None:
    """Here nobody copies: no source service runs."""
    async with behind(kafka_pair, tmp_path) as (flow, service):
        refused = await twinlog("failover", "run", "--yes", flow.flow, "--wait", "0.5", *at(service))
        assert refused.code == 1
        assert f"{flow.origin}: 10 records (the source service at " in refused.errors
        assert "BACKLOG_NOT_COPIED" in refused.errors
        unwaited = await twinlog("failover", "run", "--yes", flow.flow, "--wait", "0", *at(service))
        assert unwaited.code == 1
        assert "10 records" in unwaited.documents[-1]["left_behind"][0]


async def test_in_a_terminal_nothing_changes_before_the_question_is_answered(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    async with behind(kafka_pair, tmp_path) as (flow, service):
        code, shown = await asyncio.to_thread(in_terminal, b"n\n", "failover", "run", flow.flow, *at(service))
        assert code == 1
        assert "Move 1 group from" in shown
        assert "nothing was changed" in shown
        assert (await status(flow, service))["run"] is None


def in_terminal(answer: bytes, *arguments: str) -> tuple[int, str]:
    """Run `twinlog` on a terminal of its own; it is answered when it asks."""
    process_id, terminal = pty.fork()
    if not process_id:
        os.execv(sys.executable, [sys.executable, "-m", "twinlog", *arguments])
    shown = b""
    try:
        while True:
            try:
                part = os.read(terminal, 4096)
            except OSError:
                # The other end is closed: the command is over.
                break
            if not part:
                break
            shown += part
            if b"[y/N]" in shown and answer:
                os.write(terminal, answer)
                answer = b""
    finally:
        os.close(terminal)
    _, status_word = os.waitpid(process_id, 0)
    return os.waitstatus_to_exitcode(status_word), shown.decode()


async def test_a_failback_knows_the_flow_back_that_another_process_runs(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    """It waits for records of the target's own topics, and leaves the target's own groups where they are."""
    ends = Ends.of(kafka_pair)
    async with mirror(ends) as flow:
        await flow.fill(range(50))
        await flow.sync(0, 0)
        await flow.commit(40)
        own, copy = TopicPartition(flow.topic, 0), TopicPartition(f"{flow.b}.{flow.topic}", 0)
        syncs = f"mm2-offset-syncs.{flow.a}.internal"
        both = f"{flow.properties}\n{flow.b}->{flow.a}.enabled = true\n"
        async with run_service("checkpoint", tmp_path, both, arguments=("--flows", flow.flow)) as service:
            await ready(flow, service)
            moved = await twinlog("failover", "run", "--yes", flow.flow, *at(service))
            assert moved.code == 0, moved.errors
            bi = f"{flow.group}-bi"
            await retry_admin(
                lambda: flow.target.create_topics(
                    [
                        NewTopic(name=own.topic, partition_count=1, replication_factor=1),
                        NewTopic(name=syncs, partition_count=1, replication_factor=1),
                    ]
                )
            )
            await flow.target.alter_group_offsets(bi, {flow.copy: CommittedOffset(next_offset=5)})
            await write(flow.target, own, range(20))
            refused = await twinlog("failback", "run", "--yes", flow.flow, "--wait", "0.5", *at(service))
            assert (refused.code, "BACKLOG_NOT_COPIED" in refused.errors) == (1, True)
            assert f"{own}: 20 records" in refused.errors
            await retry_admin(
                lambda: flow.source.create_topics(
                    [NewTopic(name=copy.topic, partition_count=1, replication_factor=1)]
                )
            )
            await write(flow.source, copy, range(20))
            key, value = encode_offset_sync(OffsetSync(partition=own, upstream_offset=0, downstream_offset=0))
            async with flow.target.writer() as writer:
                await writer.append(TopicPartition(syncs, 0), key=key, value=value)
            back = await twinlog("failback", "run", "--yes", flow.flow, "--wait", "30", *at(service))
            assert back.code == 0, back.errors
            assert bi not in await flow.source.list_groups()
