"""What is said of a partition is the same from every source, and true with any part away."""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration.in_process import twinlog
from integration.source.source_rig import Rig, open_rig
from integration.source.test_source_metrics import Scrape, scrape
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.testing.brokers import KafkaPair, eventually
from twinlog.testing.service_process import ServiceProcess

STALLED_SECONDS = 2
SETTINGS = {
    "twinlog.source.metrics.listen": "127.0.0.1:0",
    "twinlog.stalled.seconds": str(STALLED_SECONDS),
    "config.properties.exclude": "max.message.bytes",
}
OLD_SECONDS = 3600
"""How old the rig's records are when they are produced."""

Lags = dict[str, int | None]
States = dict[str, str]


@dataclass(frozen=True, slots=True)
class View:
    """What everybody says: lag and state by partition, and the lag of the flow; None = not known."""

    lags: Lags
    states: States
    flow_lag: int | None


@pytest.fixture
async def rig(kafka_pair: KafkaPair, tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path, **SETTINGS) as opened:
        yield opened


async def command(service: ServiceProcess, *arguments: str) -> Any:
    """The document that a command prints. Its exit code is not looked at: the other services do not run."""
    answer = await twinlog(*arguments, "-o", "json", "--endpoint", f"source={service.endpoint}")
    assert answer.stdout, answer
    return json.loads(answer.stdout)


def named(status: pb.PartitionStatus) -> str:
    return f"{status.source.topic}-{status.source.partition}"


def state_name(status: pb.PartitionStatus) -> str:
    return pb.PartitionState.Name(status.state).removeprefix("PARTITION_STATE_")


def lag_of(status: pb.PartitionStatus) -> int | None:
    return status.lag_records if status.HasField("lag_records") else None


def of_messages(statuses: list[pb.PartitionStatus], flow_lag: int | None) -> View:
    return View(
        {named(each): lag_of(each) for each in statuses},
        {named(each): state_name(each) for each in statuses},
        flow_lag,
    )


def scraped_lags(rig: Rig, seen: Scrape, partitions: list[pb.PartitionStatus]) -> Lags:
    """An absent series is a lag that is not known."""
    lags: Lags = {}
    for each in partitions:
        values = seen.all(
            "twinlog_replication_lag",
            twinlog_source_cluster=rig.a,
            messaging_destination_name=rig.remote(each.source.topic),
            messaging_destination_partition_id=str(each.source.partition),
        )
        lags[named(each)] = int(values[0]) if values else None
    return lags


async def service_says(rig: Rig, service: ServiceProcess) -> View:
    """By its two simplest calls."""
    flow = await rig.flow_status(service)
    flow_lag = flow.lag_records if flow.HasField("lag_records") else None
    return of_messages(await rig.partitions(service), flow_lag)


async def all_say(rig: Rig, service: ServiceProcess) -> View:
    """What everybody says. AssertionError where two differ."""
    partitions = await rig.partitions(service)
    flow = await rig.flow_status(service)
    flow_lag = flow.lag_records if flow.HasField("lag_records") else None
    view = of_messages(partitions, flow_lag)
    counted: dict[str, int] = {}
    for state in view.states.values():
        counted[state] = counted.get(state, 0) + 1
    assert dict(flow.partitions_by_state) == counted
    seen = await scrape(service)
    assert scraped_lags(rig, seen, partitions) == view.lags
    states = {
        state: seen.sum("twinlog_replication_partitions", twinlog_state=state, twinlog_source_cluster=rig.a)
        for state in counted
    }
    assert states == counted
    flow_name = f"{rig.a}->{rig.b}"
    shown = await command(service, "partitions", "--flow", flow_name)
    assert {f"{each['topic']}-{each['partition']}": each["lag_records"] for each in shown} == view.lags
    assert {f"{each['topic']}-{each['partition']}": each["state"] for each in shown} == view.states
    positions = await command(service, "positions", "get", flow_name)
    assert {f"{each['topic']}-{each['partition']}": each["lag_records"] for each in positions} == view.lags
    # The other services are looked for at their default ports, where those of somebody else may be.
    (row,) = [row for row in (await command(service, "status"))["flows"] if row["flow"] == flow_name]
    assert row["lag_records"] == view.flow_lag
    assert row["partitions"] == counted
    return view


async def all_come_to_say(
    rig: Rig, service: ServiceProcess, lags: Mapping[str, int | None], states: Mapping[str, str]
) -> None:
    """Wait until everybody says this of these partitions, and the sum of the flow."""

    def right(view: View) -> bool:
        assert {name: view.lags.get(name) for name in lags} == dict(lags), view
        assert {name: view.states.get(name) for name in states} == dict(states), view
        known = [lag for lag in view.lags.values() if lag is not None]
        assert view.flow_lag == (sum(known) if len(known) == len(view.lags) else None), view
        return True

    async def agreed() -> bool:
        # Most of those asked are commands, and each starts a process: they are asked once it may be so.
        return right(await service_says(rig, service)) and right(await all_say(rig, service))

    await eventually(agreed)


async def lag_seconds(service: ServiceProcess, name: str) -> float | None:
    shown = await command(service, "partitions")
    (found,) = [each for each in shown if f"{each['topic']}-{each['partition']}" == name]
    seconds: float | None = found["lag_seconds"]
    return seconds


async def test_lag_is_true_or_not_known_from_the_first_moment_and_without_spark(rig: Rig) -> None:
    rig.extra["topics"] = "begun"
    await rig.create("begun")
    await rig.produce("begun", [b"first"] * 3)
    async with rig.configsync() as configsync:
        async with rig.running(configsync) as service:
            await all_come_to_say(rig, service, {"begun-0": 0}, {"begun-0": "RUNNING"})
        await rig.produce("begun", [b"x"] * 30)
        no_spark = {
            "twinlog.spark.master": "spark://127.0.0.1:1",
            "twinlog.spark.conf.spark.authenticate": "false",
        }
        async with rig.running(configsync, **no_spark) as service:
            said: list[View] = []

            async def known() -> bool:
                said.append(await service_says(rig, service))
                return said[-1].lags == {"begun-0": 30}

            await eventually(known)
            assert {lag for view in said for lag in view.lags.values()} <= {None, 30}, "never 0"
            assert {view.flow_lag for view in said} <= {None, 30}
            seconds = await lag_seconds(service, "begun-0")
            assert seconds is not None
            assert seconds > OLD_SECONDS, "as old as its first record"
            await all_come_to_say(rig, service, {"begun-0": 30}, {"begun-0": "STALLED"})
            (stalled,) = await rig.partitions(service)
            assert stalled.reason
            assert "no progress for" in stalled.message
            assert (await rig.flow_status(service)).reason
