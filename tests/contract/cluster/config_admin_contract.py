"""What every `ConfigAdmin` does."""

from contract.cluster.cluster_rig import ClusterRig, failure, new_topic, success
from twinlog.kafka.ports import ConfigChange, ConfigEntry, ConfigSource
from twinlog.testing.brokers import eventually


class ConfigAdminContract:
    async def test_a_set_value_says_so_and_a_default_too(self, rig: ClusterRig) -> None:
        name = await new_topic(rig.cluster, "configs", configs={"retention.ms": "123456"})
        entries = await _configs(rig, name)
        assert (entries["retention.ms"].value, entries["retention.ms"].source) == (
            "123456",
            ConfigSource.TOPIC,
        )
        assert entries["max.message.bytes"].value == "1048588"
        assert entries["max.message.bytes"].source is not ConfigSource.TOPIC
        assert not entries["retention.ms"].sensitive

    async def test_some_properties_are_told_as_all_are(self, rig: ClusterRig) -> None:
        name = await new_topic(rig.cluster, "few", configs={"retention.ms": "123456"})
        everything = await _configs(rig, name)
        keys = ["retention.ms", "max.message.bytes", "no.such.property"]
        found = await rig.cluster.describe_topic_configs([name, "not-there"], keys=keys)
        assert {entry.name: entry for entry in success(found[name])} == {
            key: everything[key] for key in keys[:2]
        }
        assert failure(found["not-there"]).reason == "TOPIC_UNKNOWN"

    async def test_only_what_is_named_changes(self, rig: ClusterRig) -> None:
        name = await new_topic(
            rig.cluster, "incremental", configs={"retention.ms": "1000", "max.message.bytes": "2000"}
        )
        altered = await rig.cluster.alter_topic_configs(
            {
                name: [
                    ConfigChange(name="cleanup.policy", value="compact,delete"),
                    ConfigChange(name="retention.ms", value=None),
                ]
            }
        )
        assert altered == {name: None}
        assert await eventually(lambda: _is_set(rig, name, "cleanup.policy"))
        set_here = {
            entry.name: entry.value
            for entry in (await _configs(rig, name)).values()
            if entry.source is ConfigSource.TOPIC
        }
        assert set_here == {"cleanup.policy": "compact,delete", "max.message.bytes": "2000"}

    async def test_a_refused_value_changes_nothing_and_hides_no_other(self, rig: ClusterRig) -> None:
        name = await new_topic(rig.cluster, "refused")
        other = await new_topic(rig.cluster, "accepted")
        altered = await rig.cluster.alter_topic_configs(
            {
                name: [
                    ConfigChange(name="retention.ms", value="soon"),
                    ConfigChange(name="cleanup.policy", value="compact"),
                ],
                other: [ConfigChange(name="retention.ms", value="5000")],
            }
        )
        refused = "INVALID_REQUEST" if rig.release.has_zookeeper else "CONFIG_REFUSED"
        assert failure(altered[name]).reason == refused
        assert altered[other] is None
        assert (await _configs(rig, name))["cleanup.policy"].value == "delete"

    async def test_no_change_is_no_error(self, rig: ClusterRig) -> None:
        name = await new_topic(rig.cluster, "unchanged")
        assert await rig.cluster.alter_topic_configs({name: []}) == {name: None}
        assert await rig.cluster.alter_topic_configs({}) == {}
        assert await rig.cluster.describe_topic_configs([]) == {}

    async def test_an_unknown_topic_is_an_error_that_hides_no_other(self, rig: ClusterRig) -> None:
        name = await new_topic(rig.cluster, "known-configs")
        described = await rig.cluster.describe_topic_configs([name, "no-such-topic"])
        assert success(described[name])
        assert failure(described["no-such-topic"]).reason == "TOPIC_UNKNOWN"
        altered = await rig.cluster.alter_topic_configs(
            {"no-such-topic": [ConfigChange(name="retention.ms", value="1")]}
        )
        assert failure(altered["no-such-topic"]).reason == "TOPIC_UNKNOWN"

    async def test_brokers_have_configs(self, rig: ClusterRig) -> None:
        entries = {entry.name: entry for entry in await rig.cluster.describe_broker_configs()}
        own_id = entries["broker.id" if rig.release.has_zookeeper else "node.id"]
        assert (own_id.value, own_id.read_only, own_id.source) == ("1", True, ConfigSource.STATIC_BROKER)


async def _configs(rig: ClusterRig, name: str) -> dict[str, ConfigEntry]:
    described = success((await rig.cluster.describe_topic_configs([name]))[name])
    return {entry.name: entry for entry in described}


async def _is_set(rig: ClusterRig, topic: str, name: str) -> bool:
    return (await _configs(rig, topic))[name].source is ConfigSource.TOPIC
