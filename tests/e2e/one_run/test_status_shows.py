"""README: `twinlog status` shows what is in force, and `--check` is 0 only if everything moves."""

import json
import subprocess
from typing import Any

from e2e.conftest import MirrorRig
from integration.in_process import twinlog
from twinlog.kafka.ports import KafkaCluster, NewTopic
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually, retry_admin, unique_name


class Commands:
    """The command line, as operators have it."""

    def __init__(self, mirror: MirrorRig) -> None:
        self._mirror = mirror
        self.flow = f"{mirror.source_alias}->{mirror.target_alias}"

    async def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return await twinlog(*arguments, "--config", str(self._mirror.run.file))

    async def ordered(self, *arguments: str) -> None:
        """A command that has to succeed."""
        done = await self.run(*arguments)
        assert done.returncode == 0, done

    async def flow_row(self) -> dict[str, Any]:
        shown = await self.run("status", "-o", "json")
        assert shown.returncode == 0, shown
        (row,) = [each for each in json.loads(shown.stdout)["flows"] if each["flow"] == self.flow]
        return dict(row)

    async def copies(self, topic: str) -> bool:
        """Whether all there is of the topic has been copied."""
        listed = await self.run("partitions", self.flow, "--topic", topic, "-o", "json")
        assert listed.returncode == 0, listed
        rows = json.loads(listed.stdout)
        return bool(rows) and all(row["state"] == "RUNNING" and row["lag_records"] == 0 for row in rows)

    async def check(self) -> tuple[int, list[dict[str, str]]]:
        shown = await self.run("status", "--check", "-o", "json")
        document = json.loads(shown.stdout)["check"]
        assert document["ok"] is (shown.returncode == 0)
        return shown.returncode, document["problems"]


async def append(cluster: KafkaCluster, topic: str, count: int) -> None:
    async with cluster.writer() as writer:
        for _ in range(count):
            await writer.append(TopicPartition(topic, 0), key=None, value=b"x")


async def test_status_shows_what_is_in_force_and_its_check_is_zero_only_if_everything_moves(
    mirror: MirrorRig,
) -> None:
    commands, topic = Commands(mirror), unique_name("e2e-shown")
    async with mirror.source() as source:
        new = NewTopic(name=topic, partition_count=1, replication_factor=1)
        await retry_admin(lambda: source.create_topics([new]))
        await append(source, topic, 3)

        async def moves() -> bool:
            assert await commands.copies(topic), "the flow may do well before it knows of a new topic"
            code, problems = await commands.check()
            assert (code, problems) == (0, [])
            row = await commands.flow_row()
            assert (row["lag_records"], row["lag_seconds"]) == (0, 0.0)
            ordered = {"PAUSE", "LIMIT", "RULE"} & {each["kind"] for each in row["in_force"]}
            return bool(row["last_copied_at"]) and not ordered

        await eventually(moves)
        await commands.ordered("pause", commands.flow, "--topic", topic)
        await commands.ordered("throttle", commands.flow, "5M")
        await commands.ordered("rules", "add", commands.flow, "topics", "another-.*")
        try:
            await append(source, topic, 4)

            async def shown() -> bool:
                row = await commands.flow_row()
                in_force = {each["kind"]: each for each in row["in_force"]}
                assert in_force["PAUSE"]["about"] == f"{commands.flow} {topic}"
                assert in_force["PAUSE"]["by"]
                assert in_force["PAUSE"]["since"]
                assert "5.0 MB/s" in in_force["LIMIT"]["message"]
                assert "another-.*" in in_force["RULE"]["message"]
                assert row["lag_records"] == 4
                code, problems = await commands.check()
                assert (code, [each["reason"] for each in problems]) == (1, ["PAUSED"])
                return True

            await eventually(shown)
            table = await commands.run("status")
            assert table.returncode == 0, "plain status tells of services"
            assert "paused, by " in table.stdout
            trouble = await commands.run("partitions", "--trouble")
            assert f"{topic}-0" in trouble.stdout
            assert "RUNNING" not in trouble.stdout
        finally:
            await commands.ordered("rules", "reset", commands.flow, "topics")
            await commands.ordered("throttle", commands.flow, "none")
            await commands.ordered("resume", commands.flow, "--topic", topic)
        await eventually(moves)
