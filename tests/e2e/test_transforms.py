"""docs/transforms.md: the transforms of a file do the same to each record here as in MirrorMaker 2."""

import json
import re
from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from integration.in_process import twinlog
from integration.in_process import twinlog as twinlog_command
from twinlog.batches import Codec, NewRecord, RawHeaders
from twinlog.clock import SystemClock
from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import CommittedOffset, KafkaCluster, NewTopic, OffsetSpec
from twinlog.kafka.whole_logs import committed_records
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.model import Flow, TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, make_topics, unique_name, write_batches
from twinlog.testing.java.mm2 import mirror_maker_2, quick_mm2_properties

pytestmark = pytest.mark.java

_Content = tuple[Any, ...]
_CONNECT = "org.apache.kafka.connect.transforms"
_TRANSFORMS = {
    "transforms": "local,deleted,audit,headers,route",
    "transforms.local.type": f"{_CONNECT}.Filter",
    "transforms.local.predicate": "isLocal",
    "transforms.deleted.type": f"{_CONNECT}.Filter",
    "transforms.deleted.predicate": "isDeleted",
    "transforms.audit.type": f"{_CONNECT}.Filter",
    "transforms.audit.predicate": "isAudit",
    "transforms.headers.type": f"{_CONNECT}.DropHeaders",
    "transforms.headers.headers": "trace,span",
    "transforms.route.type": f"{_CONNECT}.RegexRouter",
    "transforms.route.regex": r"(.*)-routed",
    "transforms.route.replacement": "$1-arrived",
    "predicates": "isLocal,isDeleted,isAudit",
    "predicates.isLocal.type": f"{_CONNECT}.predicates.HasHeaderKey",
    "predicates.isLocal.name": "local ",  # Kafka Connect leaves out blanks around a value.
    "predicates.isDeleted.type": f"{_CONNECT}.predicates.RecordIsTombstone",
    "predicates.isAudit.type": f"{_CONNECT}.predicates.TopicNameMatches",
    "predicates.isAudit.pattern": r".*-audit",
}
_NOW_MS = SystemClock().now_ms()
_RECORDS = [
    NewRecord(b"plain", b"1", _NOW_MS + 0),
    NewRecord(b"deleted", None, _NOW_MS + 1),
    NewRecord(b"empty", b"", _NOW_MS + 2),
    NewRecord(b"local", b"2", _NOW_MS + 3, ((b"local", None),)),
    NewRecord(None, b"local trace", _NOW_MS + 4, ((b"other", b"local"),)),
    NewRecord(
        b"traced",
        b"3",
        _NOW_MS + 5,
        ((b"trace", b"\xff"), (b"keep", b"\x00\xff"), (b"span", b""), (b"trace", None), (b"keep", b"2")),
    ),
    NewRecord(b"both", None, _NOW_MS + 6, ((b"local", b""), (b"trace", b""))),
]
_PASS = [b"plain", b"empty", None, b"traced"]


async def test_records_are_filtered_and_changed_as_by_mirror_maker_2(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    site, west = unique_name("site"), unique_name("west")
    plain, routed, audit = f"{site}-orders", f"{site}-routed", f"{site}-audit"
    async with (
        open_cluster("east", kafka_pair.a.client_properties()) as source,
        open_cluster(west, kafka_pair.b.client_properties()) as target,
    ):
        topics = [
            NewTopic(name=name, partition_count=2, replication_factor=1) for name in (plain, routed, audit)
        ]
        await make_topics(source, *topics)
        for codec in Codec:
            batches = [(n, codec, _RECORDS) for n in range(2)]
            for topic in (plain, routed, audit):
                await write_batches(kafka_pair.a, topic, batches)
        await write_batches(
            kafka_pair.a, plain, [(0, Codec.NONE, _RECORDS)], transactional_id=site, abort=True
        )
        await write_batches(kafka_pair.a, plain, [(0, Codec.LZ4, _RECORDS)], transactional_id=site)

        def file(alias: str) -> str:
            flow = Flow(alias, west)
            clients = {alias: kafka_pair.a.client_properties(), west: kafka_pair.b.client_properties()}
            of_flow = {f"{flow}.{key}": value for key, value in _TRANSFORMS.items()}
            return quick_mm2_properties(
                clients,
                [flow],
                {"topics": f"{site}-.*", f"{alias}.consumer.isolation.level": "read_committed", **of_flow},
            )

        async def copied(alias: str) -> list[list[_Content]] | None:
            """The records of both copies, partition by partition; None while some are missing."""
            at = [
                TopicPartition(f"{alias}.{name}", n) for name in (plain, f"{site}-arrived") for n in range(2)
            ]
            found = [await _content(target, partition) for partition in at]
            wanted = [6 * len(_PASS), *[5 * len(_PASS)] * 3]
            return found if [len(each) for each in found] == wanted else None

        async def is_empty(topic: str) -> bool:
            if topic not in await target.list_topics():
                return True
            at = [TopicPartition(topic, n) for n in range(2)]
            return set((await target.list_offsets(OffsetSpec.LATEST, at)).values()) == {0}

        # MirrorMaker 2 does not create the topic to which a router sends records.
        mm2, twinlog = unique_name("mm2"), unique_name("twinlog")
        await make_topics(
            target, NewTopic(name=f"{mm2}.{site}-arrived", partition_count=2, replication_factor=1)
        )
        async with mirror_maker_2(file(mm2), tmp_path):
            by_mm2 = await eventually(lambda: copied(mm2))
            assert await is_empty(f"{mm2}.{audit}")
        async with TwinlogRun(file(twinlog), tmp_path) as run:
            by_twinlog = await eventually(lambda: copied(twinlog))
            assert by_twinlog == by_mm2
            assert [key for key, *_ in by_mm2[1]] == 5 * _PASS
            assert await is_empty(f"{twinlog}.{audit}")
            assert await is_empty(f"{twinlog}.{routed}")
            await eventually(lambda: _succeeds("verify", f"{twinlog}->{west}", run.file))
            await eventually(lambda: _succeeds("status", "--check", run.file))
            status = await twinlog_command("status", "--config", str(run.file))
            # All of one topic, and three of seven in each other batch.
            assert "out of their copy: 133 FILTERED" in status.stdout, status.stdout


_MARKS = {
    # MirrorMaker 2 fails with its default, and with this one writes the records' own headers in Base64.
    "header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter",
    "transforms": "site,deleted,others",
    "transforms.site.type": f"{_CONNECT}.InsertHeader",
    "transforms.site.header": "copied-from",
    "transforms.site.value.literal": "Z\u00fcrich",
    "transforms.deleted.type": f"{_CONNECT}.InsertHeader",
    "transforms.deleted.header": "keep",
    "transforms.deleted.value.literal": "1",
    "transforms.deleted.predicate": "isDeleted",
    "transforms.others.type": f"{_CONNECT}.InsertHeader",
    "transforms.others.header": "not-audit",
    "transforms.others.value.literal": "true",
    "transforms.others.predicate": "isAudit",
    "transforms.others.negate": "true",
    "predicates": "isDeleted,isAudit",
    "predicates.isDeleted.type": f"{_CONNECT}.predicates.RecordIsTombstone",
    "predicates.isAudit.type": f"{_CONNECT}.predicates.TopicNameMatches",
    "predicates.isAudit.pattern": r".*-audit",
}


async def test_headers_are_inserted_as_by_mirror_maker_2_and_others_stay_as_they_are(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    site, west = unique_name("site"), unique_name("west")
    topics = [f"{site}-orders", f"{site}-audit"]
    async with (
        open_cluster("east", kafka_pair.a.client_properties()) as source,
        open_cluster(west, kafka_pair.b.client_properties()) as target,
    ):
        await make_topics(
            source, *(NewTopic(name=name, partition_count=1, replication_factor=1) for name in topics)
        )
        for codec in Codec:
            for topic in topics:
                await write_batches(kafka_pair.a, topic, [(0, codec, _RECORDS)])

        def file(alias: str) -> str:
            flow = Flow(alias, west)
            clients = {alias: kafka_pair.a.client_properties(), west: kafka_pair.b.client_properties()}
            of_flow = {f"{flow}.{key}": value for key, value in _MARKS.items()}
            # MirrorMaker 2 transforms heartbeats, too.
            rules = {"topics": f"{site}-.*", "heartbeats.replication.enabled": "false"}
            return quick_mm2_properties(clients, [flow], {**rules, **of_flow})

        async def copied(alias: str) -> list[list[_Content]] | None:
            found = [await _content(target, TopicPartition(f"{alias}.{topic}", 0)) for topic in topics]
            return found if {len(each) for each in found} == {len(Codec) * len(_RECORDS)} else None

        mm2, twinlog = unique_name("mm2"), unique_name("twinlog")
        async with mirror_maker_2(file(mm2), tmp_path):
            by_mm2 = await eventually(lambda: copied(mm2))
        async with TwinlogRun(file(twinlog), tmp_path) as run:
            by_twinlog = await eventually(lambda: copied(twinlog))
            await eventually(lambda: _succeeds("verify", f"{twinlog}->{west}", run.file))
    own = [record.headers for record in _RECORDS] * len(Codec)
    for theirs, ours in zip(by_mm2, by_twinlog, strict=True):
        assert [_with_own_in_base64(*each) for each in zip(ours, own, strict=True)] == theirs
    marks = (("copied-from", "Z\u00fcrich".encode()), ("keep", b"1"), ("not-audit", b"true"))
    assert by_twinlog[0][6][3] == (("local", b""), ("trace", b""), *marks)
    assert by_twinlog[1][6][3] == (("local", b""), ("trace", b""), *marks[:2])


def _with_own_in_base64(content: _Content, own: RawHeaders) -> _Content:
    *rest, headers = content
    written = tuple((name, value and b64encode(value)) for name, value in headers[: len(own)])
    assert [value for _, value in headers[: len(own)]] == [value for _, value in own]
    return (*rest, (*written, *headers[len(own) :]))


_ROUTERS = {
    "transforms": "traced,hours",
    "transforms.traced.type": f"{_CONNECT}.RegexRouter",
    "transforms.traced.regex": "(.*)-orders",
    "transforms.traced.replacement": "$1-traced",
    "transforms.traced.predicate": "isTraced",
    "transforms.hours.type": f"{_CONNECT}.TimestampRouter",
    "transforms.hours.topic.format": "${topic}.${timestamp}",
    "transforms.hours.timestamp.format": "yyyyMMdd'T'HH",
    "transforms.hours.predicate": "isTraced",
    "transforms.hours.negate": "true",
    "predicates": "isTraced",
    "predicates.isTraced.type": f"{_CONNECT}.predicates.HasHeaderKey",
    "predicates.isTraced.name": "trace",
}
_HOUR_MS = 3_600_000


async def test_records_are_routed_as_by_mirror_maker_2_and_groups_find_their_place(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    site, west = unique_name("site"), unique_name("west")
    topic, hours = f"{site}-orders", [_NOW_MS - ago * _HOUR_MS for ago in (30, 1, 0)]
    names = [f"{topic}.{datetime.fromtimestamp(each / 1000, UTC):%Y%m%dT%H}" for each in hours]
    routes = [f"{site}-traced", *names]
    async with (
        open_cluster("east", kafka_pair.a.client_properties()) as source,
        open_cluster(west, kafka_pair.b.client_properties()) as target,
    ):
        await make_topics(source, NewTopic(name=topic, partition_count=2, replication_factor=1))
        for codec in Codec:
            for hour in hours:
                records = [each._replace(timestamp_ms=hour) for each in _RECORDS]
                await write_batches(kafka_pair.a, topic, [(n, codec, records) for n in range(2)])
        await write_batches(
            kafka_pair.a, topic, [(0, Codec.NONE, _RECORDS)], transactional_id=site, abort=True
        )
        last = await source.list_offsets(OffsetSpec.LATEST, [TopicPartition(topic, n) for n in range(2)])
        placed = {
            each: CommittedOffset(next_offset=end)
            for each, end in last.items()
            if not isinstance(end, KafkaError)
        }
        await source.alter_group_offsets(site, placed)

        def file(alias: str) -> str:
            flow = Flow(alias, west)
            clients = {alias: kafka_pair.a.client_properties(), west: kafka_pair.b.client_properties()}
            of_flow = {f"{flow}.{key}": value for key, value in _ROUTERS.items()}
            rules = {"topics": topic, "groups": site, "sync.group.offsets.enabled": "true"}
            # MirrorMaker 2 routes heartbeats, too, and a task waits a minute for the topic that is not there.
            rules["heartbeats.replication.enabled"] = "false"
            rules[f"{alias}.consumer.isolation.level"] = "read_committed"
            return quick_mm2_properties(clients, [flow], {**rules, **of_flow})

        async def copied(alias: str) -> dict[str, list[list[_Content]]] | None:
            """By route and partition; None while some records are missing."""
            found = {
                name: [await _content(target, TopicPartition(f"{alias}.{name}", n)) for n in range(2)]
                for name in routes
            }
            counted = [len(each) for partitions in found.values() for each in partitions]
            return found if sum(counted) == 2 * len(hours) * len(Codec) * len(_RECORDS) else None

        async def has_read_all(alias: str) -> bool | None:
            at = [TopicPartition(f"{alias}.{name}", n) for name in routes for n in range(2)]
            held = (await target.group_offsets([site]))[site]
            assert not isinstance(held, KafkaError)
            for each in at:
                if each not in held:
                    return None
                async with target.reader() as reader:
                    offsets = [seen.offset async for seen in committed_records(target, reader, each)]
                if held[each].next_offset <= offsets[-1]:
                    return None
            return True

        # MirrorMaker 2 creates none of the topics to which routers send records.
        mm2, twinlog = unique_name("mm2"), unique_name("twinlog")
        await make_topics(
            target,
            *(NewTopic(name=f"{mm2}.{name}", partition_count=2, replication_factor=1) for name in routes),
        )
        async with mirror_maker_2(file(mm2), tmp_path):
            by_mm2 = await eventually(lambda: copied(mm2))
        async with TwinlogRun(file(twinlog), tmp_path) as run:
            assert await eventually(lambda: copied(twinlog)) == by_mm2
            await eventually(lambda: has_read_all(twinlog))
            await eventually(lambda: _succeeds("status", "--check", run.file))
            said = await twinlog_command("verify", f"{twinlog}->{west}", "--config", str(run.file))
            assert f"{twinlog}->{west}: EQUAL" in said.stdout, said.stdout


async def test_a_failover_places_groups_on_filtered_changed_and_routed_topics(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    site = unique_name("site")
    flow = Flow(unique_name("east"), unique_name("west"))
    filtered, changed, routed = (f"{site}-{kind}" for kind in ("filtered", "changed", "routed"))
    keys = {
        "twinlog.transform.topics": changed,
        "twinlog.transform.where": "CAST(CAST(value AS string) AS int) % 3 != 0",
        "twinlog.transform.value": "concat(CAST(value AS string), ' changed')",
        "transforms": "deleted,far",
        "transforms.deleted.type": f"{_CONNECT}.Filter",
        "transforms.deleted.predicate": "isDeleted",
        "transforms.far.type": f"{_CONNECT}.RegexRouter",
        "transforms.far.regex": "(.*)-routed",
        "transforms.far.replacement": "$1-far",
        "transforms.far.predicate": "isFar",
        "predicates": "isDeleted,isFar",
        "predicates.isDeleted.type": f"{_CONNECT}.predicates.RecordIsTombstone",
        "predicates.isFar.type": f"{_CONNECT}.predicates.HasHeaderKey",
        "predicates.isFar.name": "far",
    }
    copies = [filtered, changed, routed, f"{site}-far"]
    clients = {
        flow.source: kafka_pair.a.client_properties(),
        flow.target: kafka_pair.b.client_properties(),
    }
    rules = {"topics": f"{site}-.*", "groups": site, "offset.lag.max": "20"}
    file = quick_mm2_properties(
        clients, [flow], {**rules, **{f"{flow}.{key}": value for key, value in keys.items()}}
    )
    count, read = 300, 151
    async with (
        open_cluster(flow.source, clients[flow.source]) as source,
        open_cluster(flow.target, clients[flow.target]) as target,
    ):
        for topic in (filtered, changed, routed):
            await make_topics(source, NewTopic(name=topic, partition_count=1, replication_factor=1))
            for first in range(0, count, 10):
                records = [
                    NewRecord(
                        None if topic != filtered or n % 3 else b"deleted",
                        None if topic == filtered and n % 3 == 0 else b"%d" % n,
                        _NOW_MS + n,
                        ((b"far", b""),) if n % 7 == 0 else (),
                    )
                    for n in range(first, first + 10)
                ]
                await write_batches(kafka_pair.a, topic, [(0, Codec.ZSTD, records)])
        places = {
            TopicPartition(topic, 0): CommittedOffset(next_offset=read)
            for topic in (filtered, changed, routed)
        }
        await source.alter_group_offsets(site, places)
        at = {topic: TopicPartition(f"{flow.source}.{topic}", 0) for topic in copies}

        async def numbers(topic: str) -> dict[int, int]:
            """The numbers of the records, by offset."""
            if at[topic].topic not in await target.list_topics():
                return {}
            async with target.reader() as reader:
                return {
                    seen.offset: int((seen.value or b"").split()[0])
                    async for seen in committed_records(target, reader, at[topic])
                }

        async def copied() -> bool:
            found = {topic: set((await numbers(topic)).values()) for topic in copies}
            far = set(range(0, count, 7))
            plain = {n for n in range(count) if n % 3}
            return [*found.values()] == [plain, plain, set(range(count)) - far, far]

        async with TwinlogRun(file, tmp_path) as run:
            await eventually(copied, timeout_seconds=300)  # Spark loads its SQL.
            await eventually(lambda: _succeeds("status", "--check", run.file))
            moved = await twinlog(
                *("failover", "run", str(flow), "--group", site, "--yes", "-o", "json"),
                *("--config", str(run.file)),
            )
            assert moved.returncode == 0, moved.stdout + moved.stderr
        told = {
            each["to_topic"]: (each["verdict"], each["message"])
            for each in json.loads(moved.stdout.splitlines()[-1])["plan"]["partitions"]
        }
        held = (await target.group_offsets([site]))[site]
        assert not isinstance(held, KafkaError)
        for topic, expected in zip(copies, ("EXACT", "MAPPED", "EXACT", "MAPPED"), strict=True):
            found = await numbers(topic)
            first = next(offset for offset, number in found.items() if number >= read)
            place = held[at[topic]].next_offset
            verdict, message = told[at[topic].topic]
            bound = re.search(r"at most (\d+) records lie between", message)
            again = sum(place <= offset < first for offset in found)
            assert (verdict, again <= (int(bound[1]) if bound else 0)) == (expected, True), (topic, message)
            assert place <= first


async def _content(cluster: KafkaCluster, partition: TopicPartition) -> list[_Content]:
    if partition.topic not in await cluster.list_topics():
        return []
    async with cluster.reader() as reader:
        return [
            (record.key, record.value, record.timestamp_ms, tuple(record.headers))
            async for record in committed_records(cluster, reader, partition)
        ]


async def _succeeds(*arguments: object) -> bool | None:
    *words, file = map(str, arguments)
    answer = await twinlog(*words, "--config", file)
    assert answer.returncode == 0, answer
    return True
