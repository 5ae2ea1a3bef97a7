"""Whether the topic that a copy was written to before still exists: a copy that got another name, by another
policy or rule, was not deleted, and nothing is lost with it."""

from twinlog.errors import KafkaError
from twinlog.kafka.ports import KafkaCluster


async def topics_by_id(cluster: KafkaCluster) -> dict[str, str]:
    """The names of all topics that the cluster shows, by their ids. Raises KafkaError, also when it says of a
    single topic nothing for now: that one is not gone.

    Asks for every topic: for the rare moment in which a copy has become another topic.
    """
    there = {}
    for name, found in (await cluster.describe_topics(await cluster.list_topics())).items():
        if not isinstance(found, KafkaError):
            there[found.topic_id] = name
        elif found.retriable:
            raise found
    there.pop("", None)  # Before Kafka 2.8 topics have no ids.
    return there
