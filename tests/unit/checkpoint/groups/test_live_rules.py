"""Rules that change while the service runs."""

from twinlog.filters import DefaultGroupFilter, NameFilter, PatternList
from twinlog.testing.fakes.clock import FakeClock
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog_checkpoint.groups.directory import GroupDirectory


def group_filter(*names: str) -> DefaultGroupFilter:
    return DefaultGroupFilter(
        names=NameFilter(include=PatternList("groups", names), exclude=PatternList("groups.exclude", ()))
    )


async def test_changed_groups_are_looked_for_at_once_even_if_refresh_is_off() -> None:
    cluster = FakeCluster("A")
    for name in ("g1", "g2"):
        cluster.set_group(name)
    groups = GroupDirectory(
        admin=cluster,
        group_filter=group_filter("g1"),
        refresh_enabled=False,
        refresh_interval_seconds=600.0,
        clock=FakeClock(),
    )
    assert await groups.refresh_if_due() == {"g1"}
    groups.follow(group_filter("g2"), refresh_enabled=False, interval_seconds=600.0)
    assert await groups.refresh_if_due() == {"g2"}
