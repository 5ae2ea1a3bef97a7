"""The start and end of a flow's internal topics, and the owner of the flow, for a bundle."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from twinlog.cli.debug.archive import Archive
from twinlog.config import ClientConfig, FlowConfig, Service
from twinlog.errors import TwinlogError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, OffsetSpec
from twinlog.model import TopicPartition
from twinlog.policy import policy_from_config
from twinlog.policy.names import lease_group
from twinlog.preflight.own_topics import OwnTopic, own_topics


async def look_at_flow(archive: Archive, name: str, entry: FlowConfig, timeout_seconds: float) -> None:
    """One entry of the bundle. A cluster that does not answer is listed as missing."""
    document: dict[str, Any] = {"flow": str(entry.flow), "clusters": {}, "topics": {}, "owners": {}}
    topics = own_topics(entry, policy_from_config(entry.policy_config))
    for client in (entry.clients.source_admin, entry.clients.target_admin):
        try:
            async with AsyncExitStack() as stack:
                cluster = await stack.enter_async_context(_open(client, timeout_seconds))
                document["clusters"][client.alias] = {
                    "id": await cluster.cluster_id(),
                    "brokers": len(await cluster.brokers()),
                }
                here = [topic for topic in topics if topic.cluster == client.alias]
                document["topics"] |= await _topics(cluster, here)
                if client.alias == entry.flow.target:
                    document["owners"] = await _owners(cluster, entry)
        except TwinlogError as error:
            archive.miss(f"{name}: cluster {client.alias}", error.reason, str(error))
            document["clusters"][client.alias] = {"reason": error.reason, "message": str(error)}
    archive.add_json(name, document)


def _open(client: ClientConfig, timeout_seconds: float) -> KafkaCluster:
    return open_cluster(
        client.alias, client.properties, timeout_seconds=timeout_seconds, client_id_suffix="debug"
    )


async def _topics(cluster: KafkaCluster, topics: list[OwnTopic]) -> dict[str, Any]:
    names = [topic.name for topic in topics]
    described = await cluster.describe_topics(names)
    configs = await cluster.describe_topic_configs(names, keys=("cleanup.policy", "min.insync.replicas"))
    found: dict[str, Any] = {}
    for topic in topics:
        about, settings = described[topic.name], configs.get(topic.name, ())
        key = f"{topic.cluster}: {topic.name}"
        if isinstance(about, TwinlogError):
            found[key] = {"reason": about.reason, "message": str(about)}
            continue
        partitions = [TopicPartition(topic.name, number) for number in range(about.partition_count)]
        found[key] = {
            "id": about.topic_id,
            "partitions": about.partition_count,
            "replication_factor": about.replication_factor,
            "configs": {}
            if isinstance(settings, TwinlogError)
            else {setting.name: setting.value for setting in settings},
            "begins": _offsets(await cluster.list_offsets(OffsetSpec.EARLIEST, partitions)),
            "stable_to": _offsets(await cluster.list_offsets(OffsetSpec.LAST_STABLE, partitions)),
            "ends": _offsets(await cluster.list_offsets(OffsetSpec.LATEST, partitions)),
        }
    return found


async def _owners(cluster: KafkaCluster, entry: FlowConfig) -> dict[str, Any]:
    groups = {lease_group(str(service), entry.flow): str(service) for service in Service}
    return {
        groups[group]: {"reason": found.reason, "message": str(found)}
        if isinstance(found, TwinlogError)
        else {"group": group, "state": found.state, "members": found.member_count}
        for group, found in (await cluster.describe_groups(groups)).items()
    }


def _offsets(answers: Mapping[TopicPartition, Any]) -> list[Any]:
    return [
        answer.reason if isinstance(answer, TwinlogError) else answer for _, answer in sorted(answers.items())
    ]
