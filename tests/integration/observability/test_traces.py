"""Traces of real services and tasks, at a collector: a command's goes through all that serve it, and what
tasks write is linked to their epoch.
"""

import asyncio
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from integration.observability.collector import Collected, collector
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.testing.brokers import KafkaPair, eventually, make_topics, unique_name, write_batches

PLAIN, SAME = "translated", "preserved"
EXPORT = dict.fromkeys(
    ("OTEL_BSP_SCHEDULE_DELAY", "OTEL_BLRP_SCHEDULE_DELAY", "OTEL_METRIC_EXPORT_INTERVAL"), "200"
)
RECORDS = 10


async def make_and_fill(pair: KafkaPair, *topics: str) -> None:
    async with open_cluster("A", pair.a.client_properties()) as source:
        await make_topics(
            source, *(NewTopic(name=name, partition_count=1, replication_factor=1) for name in topics)
        )
    for topic in topics:
        await fill(pair, topic)


async def fill(pair: KafkaPair, topic: str) -> None:
    records = [NewRecord(b"k", b"v", SystemClock().now_ms()) for _ in range(RECORDS)]
    await write_batches(pair.a, topic, [(0, Codec.NONE, records)])


async def command(*arguments: str) -> str:
    """Its output. It has to end well."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "twinlog", *arguments),
        stdout=asyncio.subprocess.PIPE,
        env=dict(os.environ),
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output
    return output.decode()


def spans(collected: Collected, name: str, origin: str) -> list[Any]:
    return [
        span
        for span in collected.spans
        if span.name == name and collected.origins[span.span_id] == f"twinlog-{origin}"
    ]


def is_known(collected: Collected, name: str, link: Any) -> bool:
    """Whether the span to which it leads has arrived."""
    return (link.trace_id, link.span_id) in {
        (span.trace_id, span.span_id) for span in spans(collected, name, "source")
    }


def properties(pair: KafkaPair, a: str, b: str, plain: str, same: str) -> str:
    settings = {
        "clusters": f"{a}, {b}",
        f"{a}.bootstrap.servers": pair.a.bootstrap_servers,
        f"{b}.bootstrap.servers": pair.b.bootstrap_servers,
        f"{a}->{b}.enabled": "true",
        "topics": f"{plain}, {same}",
        "twinlog.offsets": "auto",
        "twinlog.offsets.translated.topics": plain,
        "replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "refresh.topics.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "twinlog.drain.seconds": "0",
    }
    return "".join(f"{key} = {value}\n" for key, value in settings.items())


async def test_a_trace_joins_a_command_with_the_services_behind_it_and_tasks_with_their_epoch(
    kafka_pair: KafkaPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = unique_name("a"), unique_name("b")
    plain, same = unique_name(PLAIN), unique_name(SAME)
    await make_and_fill(kafka_pair, plain, same)
    text = properties(kafka_pair, a, b, plain, same)
    async with collector() as (endpoint, collected):
        for name, value in {**EXPORT, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
        monkeypatch.setenv("OTEL_LOGS_EXPORTER", "none")
        async with TwinlogRun(text, tmp_path) as run:
            for name in ("round", "append"):
                written = (await eventually(partial(spans, collected, name, "source-task")))[0]
                (link,) = written.links
                assert written.trace_id != link.trace_id
                await eventually(partial(is_known, collected, "prepare epoch", link))

            # Without --accept-loss it asks all services for a verdict, too.
            plan_it = ("failover", "plan", f"{a}->{b}", "--accept-loss")
            await command(*plan_it, "--config", str(run.file), "-o", "json")
            (asked,) = await eventually(lambda: spans(collected, "twinlog failover", "cli"))

            def served_by(origin: str) -> list[Any]:
                return [
                    span
                    for span in collected.spans
                    if span.trace_id == asked.trace_id
                    and collected.origins[span.span_id] == f"twinlog-{origin}"
                ]

            (plan, *_) = await eventually(lambda: served_by("checkpoint"))
            assert plan.parent_span_id == asked.span_id
            (states, *_) = await eventually(lambda: served_by("source"))
            assert states.parent_span_id in {span.span_id for span in served_by("checkpoint")}
