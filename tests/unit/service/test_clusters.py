"""Connections to clusters are shared by the flows of a process."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from twinlog.config import ClientConfig, load
from twinlog.model import Flow
from twinlog.service.clusters import BROKERS_INTERVAL_SECONDS, Clusters
from twinlog.testing.brokers import eventually
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog.testing.virtual_time import FakeClock


async def test_flows_share_the_connection_to_a_cluster_where_their_settings_are_equal(tmp_path: Path) -> None:
    """The flow is only in the client.id; a hundred flows into one cluster are no hundred clients."""
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B, C, D\n"
        + "".join(f"{alias}.bootstrap.servers = {alias.lower()}:9092\n" for alias in "ABCD")
        + "".join(f"{alias}->D.enabled = true\n" for alias in "ABC")
        + "C->D.target.cluster.request.timeout.ms = 7000\nC->D.target.admin.request.timeout.ms = 7000\n"
    )
    configuration = load(file, environ={})
    opened: list[ClientConfig] = []

    def open_cluster(config: ClientConfig, _timeout: float | None) -> FakeCluster:
        opened.append(config)
        return FakeCluster(config.alias)

    async with AsyncExitStack() as stack:
        clusters = Clusters({}, open_cluster=open_cluster, stack=stack, clock=FakeClock())
        found = [
            await clusters.get(entry.clients.target_admin.for_role(entry.flow, "c", "target-admin"))
            for entry in configuration.enabled_flows
        ]
        assert [entry.flow for entry in configuration.enabled_flows] == [
            Flow("A", "D"),
            Flow("B", "D"),
            Flow("C", "D"),
        ]
        assert found[0] is found[1]
        assert found[0] is not found[2], "its settings are others"
        assert [config.properties["client.id"].split("|")[0] for config in opened] == ["A->D", "C->D"]


async def test_what_keeps_an_answer_is_the_cluster_that_is_away() -> None:
    clock, stop = FakeClock(), asyncio.Event()
    made = {alias: FakeCluster(alias) for alias in ("A", "B")}
    made["A"].take_away()
    probed = {alias: ClientConfig(alias=alias, properties={}) for alias in made}
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        clusters = Clusters(
            probed, open_cluster=lambda config, _: made[config.alias], stack=stack, clock=clock
        )
        group.create_task(clusters.probe(stop), name="probe")
        await eventually(lambda: all(status.as_of_ms for status in clusters.statuses()))
        error = clusters.hindrance()
        stop.set()
    assert "cluster A does not answer" in str(error)
    assert "cluster B" not in str(error)
    assert error.retriable


async def test_brokers_that_do_not_answer_are_named_until_they_do_and_all_while_none_does() -> None:
    clock, stop = FakeClock(), asyncio.Event()
    cluster = FakeCluster("B", broker_count=3)
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        clusters = Clusters(
            {"B": ClientConfig(alias="B", properties={})},
            open_cluster=lambda _config, _timeout: cluster,
            stack=stack,
            clock=clock,
        )
        group.create_task(clusters.probe(stop), name="probe")

        async def said(*brokers: int, reachable: bool = True) -> bool:
            (status,) = clusters.statuses()
            clock.advance(BROKERS_INTERVAL_SECONDS)
            return set(status.outage.brokers) == set(brokers) and status.reachable == reachable

        assert await eventually(said)
        cluster.kafka.nodes[2].is_up = False
        assert await eventually(lambda: said(2))
        cluster.take_away()
        assert await eventually(lambda: said(1, 2, 3, reachable=False))
        cluster.bring_back()
        assert await eventually(lambda: said(2))
        cluster.kafka.nodes[2].is_up = True
        assert await eventually(said)
        stop.set()
