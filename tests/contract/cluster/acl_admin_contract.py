"""What every `AclAdmin` does, on a cluster with an authorizer and on one without."""

from dataclasses import replace

from contract.cluster.cluster_rig import ClusterRig, failure
from twinlog.kafka.ports import AclBinding
from twinlog.testing.brokers import eventually, unique_name


def binding(resource_name: str) -> AclBinding:
    return AclBinding(
        resource_type="TOPIC",
        resource_name=resource_name,
        pattern_type="LITERAL",
        principal="User:alice",
        host="*",
        operation="READ",
        permission="ALLOW",
    )


class AclAdminContract:
    async def test_bindings_are_created_described_and_deleted(self, rig: ClusterRig) -> None:
        name = unique_name("acl")
        wanted = {
            binding(name),
            replace(binding(name), pattern_type="PREFIXED", operation="DESCRIBE_CONFIGS"),
            replace(binding(name), permission="DENY", host="10.0.0.1", principal="User:CN=bob,O=x"),
            replace(binding(name), resource_type="GROUP"),
            replace(binding(name), resource_type="TRANSACTIONAL_ID", operation="WRITE"),
            replace(binding("kafka-cluster"), resource_type="CLUSTER", operation="CREATE"),
        }
        if not rig.release.has_zookeeper:
            wanted.add(replace(binding("User:carol"), resource_type="USER", operation="DESCRIBE_TOKENS"))
        assert await rig.cluster.create_acls(wanted) == dict.fromkeys(wanted)
        assert await eventually(lambda: _has(rig, wanted))
        topics = await rig.cluster.describe_acls("TOPIC")
        assert topics is not None
        assert {one for one in topics if one.resource_name == name} == {
            one for one in wanted if one.resource_type == "TOPIC"
        }
        assert await rig.cluster.delete_acls(wanted) == dict.fromkeys(wanted)
        assert await eventually(lambda: _has_none(rig, wanted))

    async def test_creating_twice_and_deleting_nothing_are_no_errors(self, rig: ClusterRig) -> None:
        one = binding(unique_name("twice"))
        assert await rig.cluster.create_acls([one]) == {one: None}
        assert await rig.cluster.create_acls([one]) == {one: None}
        assert await rig.cluster.delete_acls([one]) == {one: None}
        assert await rig.cluster.delete_acls([one]) == {one: None}

    async def test_only_the_named_binding_is_deleted(self, rig: ClusterRig) -> None:
        name = unique_name("narrow")
        kept = replace(binding(name), operation="WRITE")
        await rig.cluster.create_acls([binding(name), kept])
        assert await eventually(lambda: _has(rig, {binding(name), kept}))
        await rig.cluster.delete_acls([binding(name)])
        assert await eventually(lambda: _has_none(rig, {binding(name)}))
        assert await _has(rig, {kept})

    async def test_an_unknown_word_is_refused_and_hides_no_other(self, rig: ClusterRig) -> None:
        good = binding(unique_name("word"))
        bad = replace(good, operation="JUGGLE")
        made = await rig.cluster.create_acls([good, bad])
        assert made[good] is None
        assert failure(made[bad]).reason == "INVALID_REQUEST"

    async def test_nothing_asked_is_nothing_answered(self, rig: ClusterRig) -> None:
        assert await rig.cluster.create_acls([]) == {}
        assert await rig.cluster.delete_acls([]) == {}


class NoAuthorizerContract:
    async def test_a_cluster_without_authorizer_has_no_acls_and_says_so(self, rig: ClusterRig) -> None:
        assert await rig.cluster.describe_acls() is None
        assert await rig.cluster.describe_acls("TOPIC") is None
        one = binding("any")
        assert failure((await rig.cluster.create_acls([one]))[one]).reason == "NO_AUTHORIZER"
        assert failure((await rig.cluster.delete_acls([one]))[one]).reason == "NO_AUTHORIZER"


async def _has(rig: ClusterRig, wanted: set[AclBinding]) -> bool:
    return wanted <= set(await rig.cluster.describe_acls() or ())


async def _has_none(rig: ClusterRig, unwanted: set[AclBinding]) -> bool:
    return not unwanted & set(await rig.cluster.describe_acls() or ())
