"""Whole lives of the services in one loop."""

from pathlib import Path

from simulated.world import ONE_BROKER, World, live

FILE = (
    ONE_BROKER
    + """
A->B.enabled = true
A->B.topics = orders.*
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
"""
)


def test_a_heartbeat_service_that_is_killed_and_started_again_emits_again(tmp_path: Path) -> None:
    async def life() -> None:
        async with World(tmp_path, FILE) as world:
            for application in world.on.values():
                application.cluster.create_topic("heartbeats")
            world.start("heartbeat")
            await world.until(lambda: world.on["B"].read("heartbeats"))
            await world.kill("heartbeat")
            emitted = len(world.on["B"].read("heartbeats"))
            await world.pause(60)
            assert len(world.on["B"].read("heartbeats")) == emitted
            world.start("heartbeat")
            await world.until(lambda: len(world.on["B"].read("heartbeats")) > emitted)
            await world.stop("heartbeat")

    live(life())
