"""Topics in pages of partitions, as Java's admin client asks for them."""

from kio.schema.describe_topic_partitions.v0.request import Cursor, DescribeTopicPartitionsRequest
from kio.schema.types import TopicName
from kio.static.primitive import i32

from twinlog.kafka.protocol.requests import API_KEYS
from twinlog.testing.broker import FakeKafka
from twinlog.testing.broker.acls import Login
from twinlog.testing.broker.calls import KAFKA_4_3, Call
from twinlog.testing.broker.handlers import HANDLERS

_API = API_KEYS["describe_topic_partitions"]


async def test_each_page_begins_where_the_last_one_ended() -> None:
    async with FakeKafka() as kafka:
        kafka.cluster.create_topic("a", partition_count=3)
        kafka.cluster.create_topic("b", partition_count=1)
        kafka.cluster.create_topic("c", partition_count=1)
        pages, cursor = [], None
        while True:
            answer = await HANDLERS[_API](_call(kafka, cursor))
            assert answer is not None
            pages.append({each["name"]: len(each["partitions"]) for each in answer["topics"]})
            following = answer["next_cursor"]
            if following is None:
                break
            cursor = following["topic_name"], following["partition_index"]
    assert pages == [{"a": 2}, {"a": 1, "b": 1}, {"c": 1}]


def _call(kafka: FakeKafka, cursor: tuple[str, int] | None) -> Call:
    made = Cursor(topic_name=TopicName(cursor[0]), partition_index=i32(cursor[1])) if cursor else None
    return Call(
        cluster=kafka.cluster,
        node=kafka.cluster.nodes[1],
        login=Login(),
        release=KAFKA_4_3,
        api_key=_API,
        version=0,
        client_id="java",
        client_host="",
        principal="User:ANONYMOUS",
        body=DescribeTopicPartitionsRequest(topics=(), response_partition_limit=i32(2), cursor=made),
        offered={},
    )
