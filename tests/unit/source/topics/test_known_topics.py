"""Which topics are copied after a restart while configsync is down."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from twinlog.config import load
from twinlog.errors import TransientKafkaError
from twinlog.model import TopicPartition
from twinlog.policy.internal_topics import configsync_topic
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog_source.config import source_flows
from twinlog_source.topics.known import KnownTopics
from twinlog_source.topics.stored_selection import StoredSelection
from unit.source.flow_rig import FILE, OneFile

COPIED = [TopicPartition("orders", 0), TopicPartition("invoices", 0)]


def known_topics(target: FakeCluster, file: Path | None = None) -> KnownTopics:
    """The file selects orders alone; both topics have positions and copies."""
    source = FakeCluster("A")
    for partition in COPIED:
        source.add_topic(partition.topic)
        target.add_topic(f"A.{partition.topic}")
    text = FILE + "A->B.topics = orders\n"
    configuration = (
        load(Path("mm2.properties"), environ={}, files=OneFile(text))
        if file is None
        else load(file, environ={})
    )
    (flow,) = source_flows(configuration)
    selection = StoredSelection(configuration=configuration, flow=flow, target=target)
    return KnownTopics(flow=flow, source=source, target=target, selection=selection)


async def store_rules(target: FakeCluster, values: Mapping[str, str], *, version: int = 1) -> None:
    """As configsync stores them."""
    target.add_topic(configsync_topic("A"), 1, {"cleanup.policy": "compact"})
    value = json.dumps({"version": version, "values": dict(values)}).encode()
    async with target.writer() as writer:
        await writer.append(TopicPartition(configsync_topic("A"), 0), key=b'["rules"]', value=value)


@pytest.mark.parametrize(
    ("values", "topics"),
    [
        ({}, {"orders"}),
        ({"topics": "orders, invoices"}, {"orders", "invoices"}),
        ({"topics": "invoices"}, {"invoices"}),
        ({"topics.exclude": "orders"}, set()),
    ],
)
async def test_the_changed_rules_that_configsync_has_stored_select_the_topics(
    values: Mapping[str, str], topics: set[str]
) -> None:
    target = FakeCluster("B")
    await store_rules(target, values)
    known = known_topics(target)
    await known.look(COPIED)
    assert set(known.topics) == topics


async def test_without_stored_rules_or_with_unusable_ones_the_file_selects_the_topics() -> None:
    target = FakeCluster("B")
    known = known_topics(target)
    await known.look(COPIED)
    assert set(known.topics) == {"orders"}
    await store_rules(target, {"topics": "invoices"}, version=2)
    again = KnownTopics(
        flow=known.flow,
        source=known.source,
        target=target,
        selection=StoredSelection(
            configuration=known.selection.configuration, flow=known.flow, target=target
        ),
    )
    await again.look(COPIED)
    assert set(again.topics) == {"orders"}


async def test_a_target_that_is_away_is_asked_again() -> None:
    target = FakeCluster("B")
    await store_rules(target, {"topics": "invoices"})
    known = known_topics(target)
    target.take_away()
    with pytest.raises(TransientKafkaError):
        await known.look(COPIED)
    target.bring_back()
    await known.look(COPIED)
    assert set(known.topics) == {"invoices"}


async def test_a_new_leader_that_shows_less_of_the_rules_for_a_moment_is_asked_again() -> None:
    target = FakeCluster("B")
    await store_rules(target, {"topics": "invoices"})
    known = known_topics(target)

    def show_nothing(call: Call) -> None:
        for name, value in {"records": [], "next_offset": 0, "high_watermark": 0}.items():
            object.__setattr__(call.result, name, value)

    undo = target.intercept("fetch", show_nothing, after=True)
    with pytest.raises(TransientKafkaError):
        await known.look(COPIED)
    undo()
    await known.look(COPIED)
    assert set(known.topics) == {"invoices"}


async def test_stored_rules_are_followed_once_the_secrets_of_the_file_can_be_read_again(
    tmp_path: Path,
) -> None:
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("password = planted\n")
    target = FakeCluster("B")
    await store_rules(target, {"topics": "invoices"})
    file = tmp_path / "mm2.properties"
    file.write_text(
        f"{FILE}A->B.topics = orders\n"
        "config.providers = file\n"
        "config.providers.file.class = org.apache.kafka.common.config.provider.FileConfigProvider\n"
        f"B.ssl.key.password = ${{file:{secrets}:password}}\n"
    )
    known = known_topics(target, file)
    known.selection.retry_seconds = 0.0
    secrets.rename(tmp_path / "away")
    await known.look(COPIED)
    assert set(known.topics) == {"orders"}
    (tmp_path / "away").rename(secrets)
    await known.look(COPIED)
    assert set(known.topics) == {"invoices"}
