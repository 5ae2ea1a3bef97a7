"""What every `GroupAdmin` does."""

from contract.cluster.cluster_rig import ClusterRig, append_values, failure, new_topic, success
from twinlog.errors import KafkaError
from twinlog.kafka.ports import CommittedOffset, GroupDescription
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually, unique_name


class GroupAdminContract:
    async def test_a_group_that_does_not_exist_is_dead_and_has_no_offsets(self, rig: ClusterRig) -> None:
        group_id = unique_name("nobody")
        described = await eventually(lambda: _description(rig, group_id))
        assert (described.state, described.member_count) == ("DEAD", 0)
        assert await rig.cluster.group_offsets([group_id]) == {group_id: {}}
        assert group_id not in await rig.cluster.list_groups()

    async def test_offsets_are_committed_for_a_group_without_members(self, rig: ClusterRig) -> None:
        topic = await new_topic(rig.cluster, "committed", partition_count=2)
        group_id = unique_name("group")
        first = {TopicPartition(topic, 0): CommittedOffset(next_offset=7, metadata="why")}
        await _commit(rig, group_id, first)
        second = {TopicPartition(topic, 1): CommittedOffset(next_offset=0)}
        await _commit(rig, group_id, second)
        assert await rig.cluster.group_offsets([group_id]) == {group_id: first | second}
        assert (await rig.cluster.list_groups())[group_id] == "classic"
        described = await eventually(lambda: _description(rig, group_id))
        assert (described.state, described.member_count) == ("EMPTY", 0)

    async def test_an_unknown_topic_hides_no_other(self, rig: ClusterRig) -> None:
        topic = await new_topic(rig.cluster, "half")
        group_id = unique_name("half")
        good, bad = TopicPartition(topic, 0), TopicPartition("no-such-topic", 0)
        await _commit(rig, group_id, {good: CommittedOffset(next_offset=1)})
        altered = await rig.cluster.alter_group_offsets(
            group_id, {good: CommittedOffset(next_offset=2), bad: CommittedOffset(next_offset=2)}
        )
        assert altered[good] is None
        assert failure(altered[bad]).reason == "TOPIC_UNKNOWN"
        assert await rig.cluster.group_offsets([group_id]) == {
            group_id: {good: CommittedOffset(next_offset=2)}
        }

    async def test_an_active_group_is_refused(self, rig: ClusterRig) -> None:
        await _is_refused(rig, "classic")

    async def test_a_deleted_group_is_gone(self, rig: ClusterRig) -> None:
        topic = await new_topic(rig.cluster, "deleted")
        group_id = unique_name("deleted")
        await _commit(rig, group_id, {TopicPartition(topic, 0): CommittedOffset(next_offset=3)})
        deleted = await rig.cluster.delete_groups([group_id, "no-such-group"])
        assert deleted[group_id] is None
        assert failure(deleted["no-such-group"]).reason == "GROUP_UNKNOWN"
        described = await eventually(lambda: _description(rig, group_id))
        assert described.state == "DEAD"

    async def test_many_groups_are_answered_at_once(self, rig: ClusterRig) -> None:
        topic = await new_topic(rig.cluster, "many")
        wanted = {
            unique_name(f"many-{number}"): {TopicPartition(topic, 0): CommittedOffset(next_offset=number)}
            for number in range(120)
        }
        for group_id, offsets in wanted.items():
            await _commit(rig, group_id, offsets)
        nobody = unique_name("nobody")
        assert await rig.cluster.group_offsets([*wanted, nobody]) == {**wanted, nobody: {}}

    async def test_nothing_asked_is_nothing_answered(self, rig: ClusterRig) -> None:
        assert await rig.cluster.describe_groups([]) == {}
        assert await rig.cluster.group_offsets([]) == {}
        assert await rig.cluster.delete_groups([]) == {}
        assert await rig.cluster.alter_group_offsets("any", {}) == {}


class OtherGroupsContract:
    """Groups of other protocols than the classic one (KIP-848, KIP-932, KIP-1071)."""

    async def test_an_active_group_of_consumers_is_refused(self, rig: ClusterRig) -> None:
        await _is_refused(rig, "consumer")

    async def test_a_share_group_is_seen_for_what_it_is(self, rig: ClusterRig) -> None:
        topic = await new_topic(rig.cluster, "shared")
        group_id = unique_name("share")
        async with rig.active_group(group_id, topic, group_type="share"):
            described = success((await rig.cluster.describe_groups([group_id]))[group_id])
            assert (described.state, described.group_type) == ("STABLE", "share")
            assert (await rig.cluster.list_groups())[group_id] == "share"
            assert await rig.cluster.group_offsets([group_id]) == {group_id: {}}

    async def test_a_streams_group_commits_as_consumer_groups_do(self, rig: ClusterRig) -> None:
        """What was committed before its first member came is where it begins; with members it is refused."""
        topic = await new_topic(rig.cluster, "streamed")
        group_id = unique_name("streams")
        offsets = {TopicPartition(topic, 0): CommittedOffset(next_offset=1)}
        later = {TopicPartition(topic, 0): CommittedOffset(next_offset=2)}
        await append_values(rig.cluster, TopicPartition(topic, 0), [b"one", b"two"])
        await _commit(rig, group_id, offsets)
        async with rig.active_group(group_id, topic, group_type="streams"):
            described = success((await rig.cluster.describe_groups([group_id]))[group_id])
            assert described.group_type == "streams"
            assert described.state not in ("EMPTY", "DEAD")
            assert (await rig.cluster.list_groups())[group_id] == "streams"
            assert await rig.cluster.group_offsets([group_id]) == {group_id: offsets}
            refused = await rig.cluster.alter_group_offsets(group_id, later)
            assert failure(refused[TopicPartition(topic, 0)]).reason == "GROUP_ACTIVE"
        described = await eventually(lambda: _settled(rig, group_id))
        assert (described.group_type, described.state, described.member_count) == ("streams", "EMPTY", 0)
        await _commit(rig, group_id, later)
        assert await rig.cluster.group_offsets([group_id]) == {group_id: later}


async def _is_refused(rig: ClusterRig, group_type: str) -> None:
    topic = await new_topic(rig.cluster, "active")
    partition = TopicPartition(topic, 0)
    await append_values(rig.cluster, partition, [b"one", b"two"])
    group_id = unique_name(f"active-{group_type}")
    async with rig.active_group(group_id, topic, group_type=group_type):
        described = success((await rig.cluster.describe_groups([group_id]))[group_id])
        assert described == GroupDescription(
            group_id=group_id, state="STABLE", group_type=group_type, member_count=1
        )
        assert (await rig.cluster.list_groups())[group_id] == group_type
        altered = await rig.cluster.alter_group_offsets(group_id, {partition: CommittedOffset(next_offset=1)})
        assert failure(altered[partition]).reason == "GROUP_ACTIVE"
        deleted = await rig.cluster.delete_groups([group_id])
        assert failure(deleted[group_id]).reason == "GROUP_ACTIVE"
    assert (await eventually(lambda: _settled(rig, group_id))).state == "EMPTY"


async def _commit(rig: ClusterRig, group_id: str, offsets: dict[TopicPartition, CommittedOffset]) -> None:
    """The first commit of a cluster's life may meet a coordinator that is only starting."""

    async def committed() -> bool:
        answers = await rig.cluster.alter_group_offsets(group_id, offsets)
        for answer in answers.values():
            if answer is not None and not answer.retriable:
                raise answer
        return not any(answers.values())

    assert await eventually(committed)


async def _settled(rig: ClusterRig, group_id: str) -> GroupDescription | None:
    """The group once it has no members."""
    described = await _description(rig, group_id)
    return described if described is not None and not described.member_count else None


async def _description(rig: ClusterRig, group_id: str) -> GroupDescription | None:
    answer = (await rig.cluster.describe_groups([group_id]))[group_id]
    if isinstance(answer, KafkaError):
        assert answer.retriable, answer
        return None
    return answer
