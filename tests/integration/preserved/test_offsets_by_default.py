"""Which offsets copies have where nobody chose: new ones those of the source, older ones their own."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from integration.source.source_rig import Rig, open_rig
from integration.source.test_source_failures import MIRROR_MAY_ALL, acl
from integration.source.test_source_preserved import offsets_are, same_offsets
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec, SaslMechanism, Security
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, retry_admin

RECORDS = [b"first %d" % number for number in range(30)]
MORE = [b"more %d" % number for number in range(20)]


@pytest.fixture
async def rig(kafka_pair: KafkaPair, tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path) as opened:
        yield opened


async def test_an_upgrade_leaves_copies_as_they_are_and_preserves_new_ones(rig: Rig) -> None:
    """A version that knew translated copies only wrote what one writes that is told to make no others."""
    for topic in ("by-default-old", "by-default-empty"):
        await rig.create(topic)
    await rig.produce("by-default-old", RECORDS)
    async with rig.configsync() as configsync:
        async with rig.running(configsync, **{"twinlog.offsets": "translated"}) as service:
            await rig.same("by-default-old")
            await offsets_are(rig, service, "by-default-empty", "translated", "OFFSETS_CONFIGURED", 0)
        await rig.create("by-default-new")
        await rig.produce("by-default-new", RECORDS)
        for _ in range(2):
            async with rig.running(configsync) as service:
                await offsets_are(rig, service, "by-default-old", "translated", "POSITION_STORED", 0)
                # Nothing of it was copied yet, so it can still have any offsets.
                for topic in ("by-default-new", "by-default-empty"):
                    await offsets_are(rig, service, topic, "preserved", "", 0)
                    await rig.produce(topic, MORE)
                    await same_offsets(rig, topic)
                await rig.produce("by-default-old", MORE)
                await rig.same("by-default-old")


async def test_copies_are_translated_where_rights_for_the_sources_offsets_are_missing(
    kafka_pair: KafkaPair, start_cluster: Callable[[ClusterSpec], BlockingCluster], tmp_path: Path
) -> None:
    """READ on a copy tells where it ends; DELETE frees what is filled before its first record."""
    security = Security(mechanisms=(SaslMechanism.PLAIN,), users={"mirror": "the mirror's"}, authorizer=True)
    target = start_cluster(ClusterSpec(name="guarded", security=security))
    async with open_rig(kafka_pair.a, target, tmp_path) as rig:
        rig.extra |= {f"{rig.b}.{key}": value for key, value in target.client_properties("mirror").items()}
        rig.extra |= {"topics": "rights-.*", "sync.topic.acls.enabled": "false"}
        may = [acl(*resource) for resource in MIRROR_MAY_ALL]
        denied = (("rights-no-read", "READ"), ("rights-no-delete", "DELETE"), ("rights-from-0", "DELETE"))
        may += [acl("TOPIC", rig.remote(topic), operation, "DENY") for topic, operation in denied]
        await retry_admin(lambda: rig.target.create_acls(may))
        for topic in ("rights-all", *(topic for topic, _ in denied)):
            await rig.create(topic)
            await rig.produce(topic, RECORDS)
        trimmed = {TopicPartition(topic, 0): 10 for topic in ("rights-all", "rights-no-delete")}
        await rig.source.delete_records(trimmed)
        async with rig.configsync() as configsync, rig.running(configsync) as service:
            for topic in ("rights-no-read", "rights-no-delete"):
                await rig.same(topic)
                await offsets_are(rig, service, topic, "translated", "RIGHTS_MISSING", 0)
            for topic, begins_at in (("rights-all", 10), ("rights-from-0", 0)):
                await same_offsets(rig, topic)
                await offsets_are(rig, service, topic, "preserved", "", begins_at)
