"""A calibration leaves no topic behind."""

import pytest

from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog.testing.virtual_time import LoopClock
from twinlog_source.config import source_flows
from twinlog_source.driver.calibration import calibrate, name_of_topic
from unit.config.config_files import load_more


async def test_a_topic_whose_creation_was_not_answered_is_deleted() -> None:
    def unanswered(_call: Call) -> None:
        raise TransientKafkaError("no answer", reason="KAFKA_TIMEOUT")

    (flow,) = source_flows(load_more("A->B.enabled = true"))
    source, target = FakeCluster("A"), FakeCluster("B", broker_count=3)
    target.intercept("create_topics", unanswered, after=True)
    topic = name_of_topic(flow)
    with pytest.raises(KafkaError, match="no answer"):
        await calibrate(flow, topic, source=source, target=target, clock=LoopClock(), seconds=1, most_bytes=1)
    assert topic not in target.topics
