"""What flows ask of the clusters while nothing is written."""

from collections import Counter

from simulated.replicas_rig import Replicas, replicated
from simulated.world import SERVICES, World, lives_in
from twinlog.kafka.protocol.metadata import METADATA

FLOWS = "ABCDEFGHIJ"
SETTLED_SECONDS, MEASURED_SECONDS = 60, 120


@lives_in(replicated, FLOWS, more="emit.heartbeats.enabled = false\n")
async def test_ten_idle_flows_read_metadata_once_a_second_each(world: World, replicas: Replicas) -> None:
    """All four services together."""
    for alias in FLOWS:
        world.on[alias].cluster.create_topic("orders")
        world.on[alias].produce("orders", 0, b"one")
    world.start(*SERVICES)
    await world.until(lambda: all(world.on["M"].ends(f"{alias}.orders") == [1] for alias in FLOWS))
    await world.pause(SETTLED_SECONDS)
    begin = len(world.requests)
    await world.pause(MEASURED_SECONDS)
    asked = Counter(key for *_, key in world.requests[begin:])
    assert asked[METADATA] <= len(FLOWS) * MEASURED_SECONDS, asked
    assert asked.total() <= 3 * len(FLOWS) * MEASURED_SECONDS, asked
