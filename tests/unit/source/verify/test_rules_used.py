"""A verification compares the topics of the rules in force, and says by which rules it chose them."""

import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from twinlog.config import ClientConfig, Configuration, load
from twinlog.errors import ConfigError
from twinlog.model import Flow, TopicPartition
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog.verify.report import FlowVerdict, document
from twinlog_source.verify.engine import Verification
from twinlog_source.verify.gathering.flow import open_gathering
from twinlog_source.verify.request import VerifyRequest

FLOW = Flow("A", "B")
REGISTRY = "mm2-configsync.A.internal"


@pytest.fixture
def clusters() -> dict[str, FakeCluster]:
    clock = FakeClock()
    made = {alias: FakeCluster(alias, clock=clock) for alias in ("A", "B")}
    for topic in ("orders", "txt"):
        made["A"].add_topic(topic)
        made["B"].add_topic(f"A.{topic}")
    made["B"].add_topic(REGISTRY, configs={"cleanup.policy": "compact"})
    return made


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
        "A->B.enabled = true\nA->B.topics = orders\n"
    )
    return load(file, environ={})


async def store_rules(target: FakeCluster, values: dict[str, str], *, version: int = 1) -> None:
    document = {"version": version, "revision": 3, "updated_at_ms": 1, "values": values}
    async with target.writer() as writer:
        value = json.dumps(document).encode()
        await writer.append(TopicPartition(REGISTRY, 0), key=b'["rules"]', value=value)


@pytest.mark.parametrize("topics", [["orders", "txt"], ["txt"]])
async def test_topics_that_a_rule_added_are_compared_and_those_that_one_removed_are_not(
    clusters: dict[str, FakeCluster], configuration: Configuration, topics: list[str]
) -> None:
    await store_rules(clusters["B"], {"topics": ", ".join(topics)})
    async with AsyncExitStack() as stack:
        gathered = await open_gathering(
            configuration,
            VerifyRequest(flow=FLOW, wait_seconds=0.0),
            stack,
            open_client=lambda client: clusters[client.alias],
        )
        bounds = await gathered.gather()
    assert [each.source.topic for each in bounds] == topics
    assert not gathered.topics.failures
    assert gathered.rules is not None
    assert gathered.rules.version == 3
    assert gathered.rules.told[0].startswith("topics: the file has 'orders', a rule replaces it by ")


async def test_a_verification_whose_rules_are_not_known_is_incomplete(
    clusters: dict[str, FakeCluster], configuration: Configuration
) -> None:
    await store_rules(clusters["B"], {"topics": "txt"}, version=2)

    def connect(client: ClientConfig) -> FakeCluster:
        return clusters[client.alias]

    report = await Verification(
        configuration=configuration,
        request=VerifyRequest(flow=FLOW),
        clock=FakeClock(),
        open_client=connect,
    ).run()
    assert report.verdict is FlowVerdict.INCOMPLETE
    [failure] = report.failures
    assert failure.reason == "WIRE_VERSION"
    assert "Run the newer release" in failure.detail
    assert document(report)["rules"] is None


async def test_where_there_is_no_spark_a_verification_of_changed_records_says_what_to_install(
    clusters: dict[str, FakeCluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
        "A->B.topics = orders\nA->B.twinlog.transform.topics = orders\n"
        "A->B.twinlog.transform.where = value IS NOT NULL\n"
    )
    await store_rules(clusters["B"], {})
    monkeypatch.setitem(sys.modules, "pyspark", None)
    verification = Verification(
        configuration=load(file, environ={}),
        request=VerifyRequest(flow=FLOW, wait_seconds=0.0),
        clock=FakeClock(),
        open_client=lambda client: clusters[client.alias],
    )
    with pytest.raises(ConfigError, match=r"A->B: .* Spark.* twinlog-all"):
        await verification.run()
