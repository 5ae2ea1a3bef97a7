"""Where the services stand: what a record waits for, and who may dial whom (docs/sites.md)."""

from statistics import median

import pytest

from simulated.replicas_rig import OTHERS, owned
from simulated.world import ONE_BROKER, SERVICES, World, lives_in
from twinlog.api.common.v1.types_pb2 import Flow
from twinlog.api.source.v1.source_service_pb2 import CalibrateRequest

FILE = f"{ONE_BROKER}A->B.enabled = true\nA->B.topics = orders\n"
ROUND_TRIP_SECONDS = 0.06
_LOOK_SECONDS = 0.002


@pytest.mark.parametrize(
    "away",
    [
        pytest.param({"B": 1.0}, id="beside the source"),
        pytest.param({"A": 1.0}, id="beside the target"),
        pytest.param({"A": 0.5, "B": 0.5}, id="on a third site"),
    ],
)
@lives_in(World, FILE)
async def test_a_record_waits_for_half_a_round_trip_wherever_the_services_stand(
    world: World, *, away: dict[str, float]
) -> None:
    world.on["A"].cluster.create_topic("orders")
    for alias, share in away.items():
        one_way = ROUND_TRIP_SECONDS / 2 * share
        world.kafka[alias].faults.begin(request_seconds=one_way, answer_seconds=one_way)
    world.start("configsync", "source")
    world.on["A"].produce("orders", 0, b"first")
    await world.until(lambda: world.on["B"].ends("A.orders") == [1])
    await world.pause(5)
    waits = []
    for number in range(5):
        world.on["A"].produce("orders", 0, b"%d" % number)
        at = world.now()
        while world.on["B"].ends("A.orders") != [number + 2]:
            await world.pause(_LOOK_SECONDS)
        waits.append(world.now() - at)
        await world.pause(0.2)
    assert ROUND_TRIP_SECONDS / 2 <= median(waits) <= ROUND_TRIP_SECONDS / 2 + 3 * _LOOK_SECONDS


@lives_in(World, FILE)
async def test_a_calibration_measures_the_way_and_leaves_nothing_behind(world: World) -> None:
    for alias in ("A", "B"):
        world.on[alias].cluster.create_topic("orders")
    one_way = ROUND_TRIP_SECONDS / 2
    world.kafka["B"].faults.begin(request_seconds=one_way, answer_seconds=one_way)
    world.start("configsync", "source")
    world.on["A"].produce("orders", 0, b"first")
    await world.until(lambda: world.on["B"].ends("A.orders") == [1])
    request = CalibrateRequest(flow=Flow(source="A", target="B"), most_bytes=1, dry_run=True)
    before = set(world.on["B"].cluster.topics)
    planned = await world.order("Calibrate", request)
    assert (planned.most_bytes, planned.max_slots) == (30_000_000, 0)
    request.dry_run = False
    found = await world.order("Calibrate", request)
    assert set(world.on["B"].cluster.topics) == before, "the topic is gone"
    assert found.target_round_trip_ms == pytest.approx(1000 * ROUND_TRIP_SECONDS, rel=0.1)
    speeds = {each.slots: each.bytes_per_second for each in found.speeds}
    assert found.max_slots == 8, "nothing but the way limits them"
    assert speeds[8] > 4 * speeds[1]


@lives_in(World, FILE, machines_differ=True)
async def test_a_source_network_that_lets_nobody_in_is_copied_from_inside_and_given_up_from_outside(
    world: World,
) -> None:
    """Processes stand on both sites. Those beside the target never reach the source."""
    here, there = world.on["A"], world.on["B"]
    here.cluster.create_topic("orders")
    here.produce("orders", 0, *(b"%d" % number for number in range(5)))
    here.commit("readers", "orders", {0: 3})

    def are_owned_by(site: str) -> bool:
        return all("A->B" in owned(world, f"{service} {site}") for service in SERVICES)

    for service in SERVICES:
        world.start(f"{service} outside")
        world.bar(f"{service} outside", "A")
    await world.pause(20)
    assert not there.ends("A.orders")
    for service in SERVICES:
        world.start(f"{service} inside", arguments=OTHERS)
    await world.until(lambda: are_owned_by("inside"))
    await world.until(lambda: there.ends("A.orders") == [5])
    await world.pause(90)
    assert are_owned_by("inside")
    for service in SERVICES:
        await world.kill(f"{service} inside")
    await world.until(lambda: are_owned_by("outside"))
    *_, last = await world.move("failover", accept_loss=True)
    assert not last.report.left_behind, last
    assert there.committed("readers") == {("A.orders", 0): 3}
