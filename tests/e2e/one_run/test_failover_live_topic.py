"""Docs: a failover waits for every topic that the rules select, also for one that a changed rule added."""

import json

from e2e.conftest import MirrorRig
from e2e.one_run.test_status_shows import Commands
from twinlog.kafka.ports import CommittedOffset, KafkaCluster, NewTopic
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually, retry_admin, unique_name

COPIED, MORE = 10, 5


async def write(cluster: KafkaCluster, topic: str, count: int) -> None:
    async with cluster.writer() as writer:
        for number in range(count):
            await writer.append(TopicPartition(topic, 0), key=None, value=b"%d" % number)


async def test_a_failover_names_what_is_not_copied_of_a_topic_that_a_changed_rule_added(
    mirror: MirrorRig,
) -> None:
    commands, live, group = Commands(mirror), unique_name("live-orders"), unique_name("billing")
    async with mirror.source() as source:
        new = NewTopic(name=live, partition_count=1, replication_factor=1)
        await retry_admin(lambda: source.create_topics([new]))
        try:
            await commands.ordered("rules", "add", commands.flow, "topics", live)
            await write(source, live, COPIED)
            await eventually(lambda: commands.copies(live))
            await commands.ordered("pause", commands.flow, "--topic", live)
            await write(source, live, MORE)
            offset = {TopicPartition(live, 0): CommittedOffset(next_offset=COPIED)}
            await retry_admin(lambda: source.alter_group_offsets(group, offset))

            async def not_copied() -> int:
                """What a failover would wait for, of this topic."""
                plan = await commands.run("failover", "plan", commands.flow, "--group", group, "-o", "json")
                rows = [row for row in json.loads(plan.stdout)["backlog"] if row["topic"] == live]
                return sum(row["records_not_copied"] for row in rows)

            async def is_named() -> bool:
                return await not_copied() == MORE

            await eventually(is_named)
            await commands.ordered("resume", commands.flow, "--topic", live)

            async def is_complete() -> bool:
                return await not_copied() == 0

            await eventually(is_complete)
        finally:
            await commands.ordered("rules", "reset", commands.flow, "topics")
