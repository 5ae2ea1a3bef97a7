"""`twinlog verify` judges what the real MirrorMaker 2 made: a good mirror, and one with its duplicates."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from integration.verify.verify_rig import differences
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.config import load
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic, OffsetSpec
from twinlog.model import Flow, TopicPartition
from twinlog.testing.brokers import (
    KafkaPair,
    awkward_records,
    eventually,
    make_topics,
    unique_name,
    write_batches,
)
from twinlog.testing.java.mm2 import mirror_maker_2, quick_mm2_properties
from twinlog.verify.report import document
from twinlog_source.verify.engine import Verification
from twinlog_source.verify.request import VerifyRequest

pytestmark = pytest.mark.java


async def test_a_mirror_made_by_mm2_is_proven_and_what_it_repeats_after_a_crash_is_duplicate(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    topic, east, west = unique_name("verified-mm2"), unique_name("east"), unique_name("west")
    clients = {east: kafka_pair.a.client_properties(), west: kafka_pair.b.client_properties()}
    flow = Flow(east, west)

    def file(**extra: str) -> Path:
        settings = {
            "topics": topic,
            f"{east}.consumer.isolation.level": "read_committed",
            # Nothing is stored before it ends in order: after a crash it repeats everything.
            f"{west}.offset.flush.interval.ms": "3600000",
            **extra,
        }
        made = tmp_path / "mm2.properties"
        made.write_text(quick_mm2_properties(clients, [flow], settings), encoding="latin-1")
        return made

    async def verified(partition: int = 0) -> Any:
        verification = Verification(
            configuration=load(file(), environ={}),
            request=VerifyRequest(
                flow=flow,
                topics=frozenset({topic}),
                partitions=frozenset({partition}),
                wait_seconds=1.0,
            ),
            clock=SystemClock(),
        )
        return document(await verification.run())

    now_ms = SystemClock().now_ms()
    # MM2 takes the names of headers for UTF-8: it changes others.
    records = [record for record in awkward_records(now_ms) if record.key != b"header names"]
    changed = [record for record in awkward_records(now_ms) if record.key == b"header names"]
    copied = [*records * 5, *records]
    async with open_cluster(east, clients[east]) as source, open_cluster(west, clients[west]) as target:
        await make_topics(source, NewTopic(name=topic, partition_count=2, replication_factor=1))
        await write_batches(kafka_pair.a, topic, [(0, codec, records) for codec in Codec])
        await write_batches(kafka_pair.a, topic, [(1, Codec.NONE, changed)])
        await write_batches(
            kafka_pair.a, topic, [(0, Codec.LZ4, records)], transactional_id=topic, abort=True
        )
        await write_batches(kafka_pair.a, topic, [(0, Codec.LZ4, records)], transactional_id=topic)
        copy = TopicPartition(f"{east}.{topic}", 0)

        async def end() -> int:
            found = (await target.list_offsets(OffsetSpec.LATEST, [copy]))[copy]
            return found if isinstance(found, int) else 0

        async def has(count: int) -> bool:
            return await end() >= count

        async def at_rest() -> Any:
            """The report about a copy that did not grow meanwhile."""
            before = await end()
            report = await verified()
            return report if await end() == before else None

        text = file().read_text("latin-1")
        async with mirror_maker_2(text, tmp_path) as mm2:
            await eventually(lambda: has(len(copied)))
            report = await eventually(at_rest)
            # A task of MM2 that starts again, as on a busy machine, repeats what it had not stored.
            repeated = await end() - len(copied)
            assert report["differences_by_kind"] == ({"DUPLICATE": repeated} if repeated else {})
            assert report["verdict"] == ("DIFFERENT" if repeated else "EQUAL"), report
            assert report["records"] == len(copied)
            report = await verified(partition=1)
            assert differences(report) == [("CHANGED", 0, 0, 1)]
            assert report["differences"][0]["changed"] == ["headers"]
            await asyncio.to_thread(mm2.kill)
        async with mirror_maker_2(text, tmp_path):
            await eventually(lambda: has(2 * len(copied) + repeated))
            report = await eventually(at_rest)
        assert report["verdict"] == "DIFFERENT"
        repeated = report["differences_by_kind"]["DUPLICATE"]
        assert repeated >= len(copied)
        assert report["differences_by_kind"] == {"DUPLICATE": repeated}
        assert len(places(differences(report))) == repeated
        foreign = NewRecord(b"a", b"b", now_ms)
        await write_batches(kafka_pair.b, copy.topic, [(0, Codec.NONE, [foreign])])
        report = await verified()
        assert report["differences_by_kind"] == {"DUPLICATE": await end() - len(copied) - 1, "FOREIGN": 1}


def places(found: Sequence[tuple[str, int | None, int | None, int]]) -> list[int]:
    """Target offsets of all records in runs."""
    return sorted(
        target + number for _, _, target, count in found if target is not None for number in range(count)
    )
