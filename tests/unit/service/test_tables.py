"""A follower of a table knows what the topic has: told by the owner, cut off at any moment, or without it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from twinlog.kafka.table import Table
from twinlog.service.feeds.tables import TableFollower, TableName, ToldTables
from twinlog.service.runtime import Backoff
from twinlog.testing.brokers import eventually
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog.testing.virtual_time import FakeClock
from unit.decided import Joined

NAME = TableName("B", "table")


class Texts:
    def decode_key(self, key: bytes) -> str | None:
        return key.decode()

    def decode_value(self, key: str, value: bytes) -> str:
        return value.decode()

    def encode(self, key: str, value: str | None) -> tuple[bytes, bytes | None]:
        return key.encode(), None if value is None else value.encode()


@dataclass
class World:
    cluster: FakeCluster
    owner: Table[str, str]
    told: ToldTables
    joined: Joined
    follower: TableFollower
    followed: Table[str, str]
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def put(self, **rows: str | None) -> None:
        """As an owner does it."""
        await self.owner.put(rows)
        await self.owner.load()
        self.told.show(NAME, self.owner, lambda _key: True)

    async def agrees(self) -> None:
        await eventually(lambda: self.followed.rows == self.owner.rows)


def following(joined: Joined, **settings: float) -> TableFollower:
    channel: Any = joined
    return TableFollower(
        channel,
        peer="the owner",
        clock=FakeClock(),
        backoff=Backoff(initial_seconds=0.01, max_seconds=0.01, random=lambda: 1.0),
        on_change=lambda _name: None,
        patience_seconds=0.01,
        **settings,
    )


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    cluster, stop = FakeCluster("B"), asyncio.Event()
    told = ToldTables(stop)
    joined = Joined(told)
    follower = following(joined, read_seconds=0.01)
    tables = [Table(cluster=cluster, topic="table", codec=Texts()) for _ in range(2)]
    follower.add(NAME, tables[1])
    made = World(cluster, tables[0], told, joined, follower, tables[1], stop)
    async with asyncio.TaskGroup() as group:
        group.create_task(follower.run(stop), name="follower")
        yield made
        stop.set()


@pytest.mark.parametrize("seed", range(20))
async def test_a_follower_that_is_cut_off_at_any_moment_knows_what_the_owner_has_read(seed: int) -> None:
    random = Random(seed)
    async with world() as at:
        for step in range(30):
            match random.randrange(6):
                case 0:
                    at.joined.is_away = not at.joined.is_away
                    at.joined.cut()
                case 1:
                    at.joined.most = random.choice([None, 0, 1, 2])
                    at.joined.cut()
                case 2:
                    await at.agrees()
                case _:
                    key = random.choice("abcde")
                    await at.put(**{key: random.choice([None, f"{step}" * random.choice([1, 100_000])])})
        await at.agrees()


async def test_only_what_is_new_since_the_revision_is_told() -> None:
    async with world() as at:
        await at.put(a="1", b="1", c="1")
        await eventually(lambda: at.follower.is_told(NAME))
        await at.put(b="2", c=None)
        await at.agrees()
        whole, news = (each for each in at.joined.sent if each.HasField("revision"))
        assert (whole.is_whole, news.is_whole) == (True, False)
        assert [(row.key, row.value if row.HasField("value") else None) for row in news.rows] == [
            (b"b", b"2"),
            (b"c", None),
        ]
        at.joined.sent.clear()
        at.joined.cut()
        await eventually(lambda: bool(at.joined.sent))
        (same,) = at.joined.sent
        assert (list(same.rows), same.is_whole) == ([], False)


async def test_without_its_owner_a_table_is_read_from_its_topic_and_told_from_there_on() -> None:
    async with world() as at:
        at.joined.is_away = True
        at.joined.cut()
        await at.owner.put({"a": "1"})
        await at.owner.load()
        await at.agrees()
        assert not at.follower.is_told(NAME)
        revision = at.followed.revision
        assert revision == at.owner.revision
        at.told.show(NAME, at.owner, lambda _key: True)
        at.joined.is_away = False
        await eventually(lambda: at.follower.is_told(NAME))
        assert [len(each.rows) for each in at.joined.sent] == [0]


async def test_a_topic_that_cannot_be_read_is_named_until_it_can() -> None:
    async with world() as at:
        at.joined.is_away = True
        at.joined.cut()
        await at.owner.put({"a": "1"})
        at.cluster.take_away()
        await eventually(lambda: at.follower.problem(NAME) is not None)
        at.cluster.bring_back()
        await eventually(lambda: at.follower.problem(NAME) is None)
        await at.agrees()


async def test_a_cluster_that_does_not_answer_holds_up_the_tables_of_no_other() -> None:
    async with world() as at:
        at.joined.is_away = True
        silent, answers = FakeCluster("C"), asyncio.Event()

        async def wait(_call: Call) -> None:
            await answers.wait()

        silent.intercept("describe_topics", wait)
        tables = {TableName("C", f"of-c-{number}"): silent for number in range(20)} | {NAME: at.cluster}
        follower = following(at.joined)
        for name, cluster in tables.items():
            follower.add(name, Table(cluster=cluster, topic=name.topic, codec=Texts()))
        await at.owner.put({"a": "1"})
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(follower.know(name), name=name.topic) for name in tables]
            await waiting[-1]
            assert not any(each.done() for each in waiting[:-1])
            answers.set()
