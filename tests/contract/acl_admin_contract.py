"""What every `AclAdmin` does, on a cluster with an authorizer and on one without."""

from dataclasses import replace

from contract.workbench import Workbench, failure
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
    async def test_bindings_are_created_described_and_deleted(self, bench: Workbench) -> None:
        name = unique_name("acl")
        wanted = {
            binding(name),
            replace(binding(name), pattern_type="PREFIXED", operation="DESCRIBE_CONFIGS"),
            replace(binding(name), permission="DENY", host="10.0.0.1", principal="User:CN=bob,O=x"),
            replace(binding(name), resource_type="GROUP"),
            replace(binding(name), resource_type="TRANSACTIONAL_ID", operation="WRITE"),
            replace(binding("kafka-cluster"), resource_type="CLUSTER", operation="CREATE"),
            replace(binding("User:carol"), resource_type="USER", operation="DESCRIBE_TOKENS"),
        }
        assert await bench.cluster.create_acls(wanted) == dict.fromkeys(wanted)
        assert await eventually(lambda: _has(bench, wanted))
        topics = await bench.cluster.describe_acls("TOPIC")
        assert topics is not None
        assert {one for one in topics if one.resource_name == name} == {
            one for one in wanted if one.resource_type == "TOPIC"
        }
        assert await bench.cluster.delete_acls(wanted) == dict.fromkeys(wanted)
        assert await eventually(lambda: _has_none(bench, wanted))

    async def test_creating_twice_and_deleting_nothing_are_no_errors(self, bench: Workbench) -> None:
        one = binding(unique_name("twice"))
        assert await bench.cluster.create_acls([one]) == {one: None}
        assert await bench.cluster.create_acls([one]) == {one: None}
        assert await bench.cluster.delete_acls([one]) == {one: None}
        assert await bench.cluster.delete_acls([one]) == {one: None}

    async def test_only_the_named_binding_is_deleted(self, bench: Workbench) -> None:
        name = unique_name("narrow")
        kept = replace(binding(name), operation="WRITE")
        await bench.cluster.create_acls([binding(name), kept])
        assert await eventually(lambda: _has(bench, {binding(name), kept}))
        await bench.cluster.delete_acls([binding(name)])
        assert await eventually(lambda: _has_none(bench, {binding(name)}))
        assert await _has(bench, {kept})

    async def test_an_unknown_word_is_refused_and_hides_no_other(self, bench: Workbench) -> None:
        good = binding(unique_name("word"))
        bad = replace(good, operation="JUGGLE")
        made = await bench.cluster.create_acls([good, bad])
        assert made[good] is None
        assert failure(made[bad]).reason == "INVALID_REQUEST"

    async def test_nothing_asked_is_nothing_answered(self, bench: Workbench) -> None:
        assert await bench.cluster.create_acls([]) == {}
        assert await bench.cluster.delete_acls([]) == {}


class NoAuthorizerContract:
    async def test_a_cluster_without_authorizer_has_no_acls_and_says_so(self, bench: Workbench) -> None:
        assert await bench.cluster.describe_acls() is None
        assert await bench.cluster.describe_acls("TOPIC") is None
        one = binding("any")
        assert failure((await bench.cluster.create_acls([one]))[one]).reason == "NO_AUTHORIZER"
        assert failure((await bench.cluster.delete_acls([one]))[one]).reason == "NO_AUTHORIZER"


async def _has(bench: Workbench, wanted: set[AclBinding]) -> bool:
    return wanted <= set(await bench.cluster.describe_acls() or ())


async def _has_none(bench: Workbench, unwanted: set[AclBinding]) -> bool:
    return not unwanted & set(await bench.cluster.describe_acls() or ())
