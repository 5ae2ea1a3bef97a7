"""Internal topics that are read whole stay small."""

import pytest

from twinlog.errors import FatalKafkaError, KafkaError, TransientKafkaError
from twinlog.kafka.admin.compacted_topic import (
    COMPACTED_SOON,
    TopicMaking,
    compact_soon,
    ensure_compacted_topic,
)
from twinlog.testing.fakes.cluster import Call, FakeCluster

TOPIC = "mm2-offsets.A.internal"


async def made(cluster: FakeCluster, **configs: str) -> TopicMaking:
    return await ensure_compacted_topic(
        cluster, TOPIC, replication_factor=1, configs=configs, is_read_whole=True
    )


async def test_it_is_created_with_small_segments_unless_the_file_says_otherwise() -> None:
    cluster = FakeCluster("B")
    assert await made(cluster, **{"segment.bytes": "1048576"}) is TopicMaking.CREATED
    assert cluster.topics[TOPIC].configs == {
        "cleanup.policy": "compact",
        **COMPACTED_SOON,
        "segment.bytes": "1048576",
    }


@pytest.mark.parametrize("reason", ["CONFIG_REFUSED", "POLICY_VIOLATION"])
async def test_a_cluster_that_refuses_these_settings_gets_the_topic_without(reason: str) -> None:
    cluster = FakeCluster("B")

    def refuse(call: Call) -> None:
        for topic in call.arguments["topics"]:
            if "segment.bytes" in topic.configs:
                cluster.topics.pop(topic.name, None)
                call.result[topic.name] = FatalKafkaError("at least 50 MiB", reason=reason)

    cluster.intercept("create_topics", refuse, after=True)
    assert await made(cluster) is TopicMaking.CREATED
    assert cluster.topics[TOPIC].configs == {"cleanup.policy": "compact"}


async def test_a_value_that_the_cluster_refuses_does_not_keep_the_others_away() -> None:
    cluster = FakeCluster("B")
    cluster.add_topic(TOPIC, configs={"cleanup.policy": "compact"})

    def refuse(call: Call) -> None:
        if call.arguments["changes"][TOPIC][0].name == "segment.bytes":
            cluster.topics[TOPIC].configs.pop("segment.bytes")
            call.result[TOPIC] = FatalKafkaError("at least 50 MiB", reason="CONFIG_REFUSED")

    cluster.intercept("alter_topic_configs", refuse, after=True)
    await compact_soon(cluster, TOPIC)
    others = {name: value for name, value in COMPACTED_SOON.items() if name != "segment.bytes"}
    assert cluster.topics[TOPIC].configs == {"cleanup.policy": "compact", **others}


@pytest.mark.parametrize("operation", ["describe_topic_configs", "alter_topic_configs"])
@pytest.mark.parametrize(
    "error", [FatalKafkaError("no right", reason="TOPIC_UNAUTHORIZED"), TransientKafkaError("no answer")]
)
async def test_without_the_right_or_an_answer_the_topic_stays_as_it_is_and_the_log_warns(
    operation: str, error: KafkaError, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = FakeCluster("B")
    cluster.add_topic(TOPIC, configs={"cleanup.policy": "compact"})

    def fail(_: Call) -> None:
        raise error

    cluster.intercept(operation, fail)
    await compact_soon(cluster, TOPIC)
    assert cluster.topics[TOPIC].configs == {"cleanup.policy": "compact"}
    (told,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert TOPIC in told
