"""Whether the topic that a copy was written to before still exists: a copy that got another name, by another
policy or rule, was not deleted, and nothing is lost with it."""

from twinlog.errors import KafkaError
from twinlog.kafka.ports import KafkaCluster


async def topics_by_id(cluster: KafkaCluster) -> dict[str, str]:
    """The names of all topics that the cluster shows, by their ids. Raises KafkaError.

    Asks for every topic: for the rare moment in which a copy has become another topic.
    """
    described = await cluster.describe_topics(await cluster.list_topics())
    return {
        found.topic_id: name
        for name, found in described.items()
        if not isinstance(found, KafkaError) and found.topic_id
    }
