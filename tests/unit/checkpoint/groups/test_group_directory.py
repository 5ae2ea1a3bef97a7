"""What is known of groups while brokers that coordinate them come and go."""

import asyncio

import pytest
from structlog.testing import capture_logs

from twinlog.errors import TransientKafkaError
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog_checkpoint.groups.directory import GroupDirectory
from unit.checkpoint.dead_leader import keep_from_listing, kill_coordinator, lose_coordinator
from unit.name_lists import group_lists

ORDERS = TopicPartition("orders", 0)


def directory(cluster: FakeCluster, *groups: str) -> GroupDirectory:
    for group in groups:
        cluster.set_group(group, {ORDERS: 1})
    return GroupDirectory(
        admin=cluster,
        group_filter=group_lists(".*", ""),
        refresh_enabled=True,
        refresh_interval_seconds=600.0,
        clock=FakeClock(),
    )


async def test_a_group_that_leaves_the_list_while_others_are_asked_for_is_looked_for() -> None:
    """A pass lists the groups while a plan waits for the coordinator of one."""
    cluster = FakeCluster("A")
    groups = directory(cluster, "g", "h")
    await groups.refresh_if_due()
    lose_coordinator(cluster, "g")
    asked, lost = asyncio.Event(), asyncio.Event()

    async def wait(_call: Call) -> None:
        asked.set()
        await lost.wait()

    cluster.intercept("group_offsets", wait)
    async with asyncio.TaskGroup() as tasks:
        plan = tasks.create_task(groups.present(()), name="plan")
        await asked.wait()
        lose_coordinator(cluster, "h")
        groups.list_again()
        await groups.refresh_if_due()
        lost.set()
    again = await groups.present(())
    assert plan.result().away.keys() == {"g"}
    assert again.away.keys() == {"g", "h"}


async def test_a_group_that_rules_exclude_for_a_while_is_looked_for() -> None:
    cluster = FakeCluster("A")
    groups = directory(cluster, "g", "h")
    await groups.refresh_if_due()
    groups.follow(group_lists("h", ""), refresh_enabled=True, interval_seconds=600.0)
    assert await groups.refresh_if_due() == {"h"}
    lose_coordinator(cluster, "g")
    groups.follow(group_lists(".*", ""), refresh_enabled=True, interval_seconds=600.0)
    found = await groups.present(())
    assert found.away.keys() == {"g"}


async def test_a_list_that_fails_for_a_plan_is_due_for_passes_no_earlier() -> None:
    cluster = FakeCluster("A")
    groups = directory(cluster, "g")
    await groups.refresh_if_due()
    keep_from_listing(cluster)
    found = await groups.present(())
    told = await groups.offsets()
    assert found.problem is not None
    assert told.keys() == {"g"}


async def test_a_group_that_is_gone_is_looked_for_once() -> None:
    cluster = FakeCluster("A")
    groups = directory(cluster, "g", "h")
    await groups.refresh_if_due()
    await cluster.delete_groups(["g"])
    asked: list[Call] = []
    cluster.intercept("group_offsets", asked.append)
    for _ in range(2):
        assert (await groups.present(())).groups == {"h"}
    assert [set(call.arguments["group_ids"]) for call in asked] == [{"g"}]


async def test_a_group_that_is_gone_counts_for_no_plan_once_passes_have_listed_the_groups() -> None:
    """Afterwards its coordinator may be away, and not tell that any more."""
    cluster = FakeCluster("A")
    groups = directory(cluster, "g", "h", "k")
    await groups.offsets()
    await cluster.delete_groups(["g"])
    lose_coordinator(cluster, "h")
    groups.list_again()
    assert (await groups.offsets()).keys() == {"k"}
    kill_coordinator(cluster, "g", lookup="group_offsets")
    assert (await groups.present(())).away.keys() == {"h"}


@pytest.mark.parametrize("is_due", ["by the interval", "after a move"])
async def test_a_broker_that_lists_no_groups_keeps_no_known_one_from_being_read(is_due: str) -> None:
    cluster = FakeCluster("A")
    groups = directory(cluster, "g")
    await groups.offsets()
    asked: list[Call] = []
    cluster.intercept("list_groups", asked.append)
    keep_from_listing(cluster)
    if is_due == "after a move":
        groups.list_again()
    assert isinstance(groups.clock, FakeClock)
    groups.clock.advance(600.0)
    with capture_logs() as logs:
        for _ in range(4):
            assert (await groups.offsets()).keys() == {"g"}
            groups.clock.advance(25.0)
    assert len(asked) == 2, "each time costs a time-out"
    assert groups.problem is not None
    assert {each["reason"] for each in logs} == {groups.problem.reason}
    assert groups.is_listed is (is_due == "by the interval"), "none may be deleted by rules that changed"


async def test_groups_cannot_be_told_before_the_first_list() -> None:
    cluster = FakeCluster("A")
    groups = directory(cluster, "g")
    keep_from_listing(cluster)
    with pytest.raises(TransientKafkaError):
        await groups.offsets()
