"""The run: it takes seconds to start, and goes through more this way."""

import asyncio
from collections.abc import Iterator

import pytest

from e2e.conftest import FAST_AND_SMALL, MirrorRig
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.testing.brokers import KafkaPair, unique_name


@pytest.fixture(scope="package")
def mirror(kafka_pair: KafkaPair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MirrorRig]:
    """One run for many tests: they use topics of their own, and leave all four services at work."""
    source, target = unique_name("east"), unique_name("west")
    properties = f"""
clusters = {source}, {target}
{source}.bootstrap.servers = {kafka_pair.a.bootstrap_servers}
{target}.bootstrap.servers = {kafka_pair.b.bootstrap_servers}
{source}->{target}.enabled = true
{target}->{source}.emit.heartbeats.enabled = false
topics = e2e-.*
twinlog.offsets = auto
twinlog.offsets.translated.topics = .*-translated-.*
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 1
{FAST_AND_SMALL}"""
    run = TwinlogRun(properties, tmp_path_factory.mktemp("mirror"))
    try:
        asyncio.run(run.start())
        yield MirrorRig(run=run, source_alias=source, target_alias=target, pair=kafka_pair)
    finally:
        asyncio.run(run.stop())
