"""Three processes of the source service share three flows. They are killed and replaced, suspended, and one
of them is cut off from one cluster. At the end every copy is identical; all the time each flow has one owner.

    python tests/chaos/replicas_chaos.py --seed 7 --minutes 8

The process that is cut off does not end a connection: nothing comes through. The clock of one process
and its tasks is 15 minutes ahead, that of the next as much behind. Exit code 0 only if nothing is missing or
repeated, no flow had two owners, and none was without one for longer than an owner's time-out and five
seconds.
"""

import asyncio
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import grpc

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

from chaos.played import far_listener, parser_of, play
from chaos.source_chaos import OWNER_TIMEOUT_SECONDS, Chaos, SourceOutcome
from integration.source.cut_link import CutLink, cut_link
from integration.source.source_rig import Rig, open_rig, quiet
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ADDRESS, ClusterSpec
from twinlog.testing.brokers import eventually, unique_name
from twinlog.testing.service_process import ServiceProcess

REPLICAS, FLOWS = 3, 3
RECORDS_PER_SECOND = 400
KINDS = ("replica", "replica", "pause", "pause", "pause", "cut", "cut", "task", "jvm")
CUT_SECONDS = (2.0, 8.0, 20.0)
CLOCKS_AHEAD_SECONDS = (900, -900, 0)
SHIFTED_CLOCK = """
import os, time
now_ns, ahead = time.time_ns, int(os.environ["CLOCK_AHEAD_SECONDS"])
time.time_ns = lambda: now_ns() + ahead * 10**9
time.time = lambda: time.time_ns() / 1e9
"""
"""Python imports it at the start of every process."""
LOOK_SECONDS = 0.5
ANSWER_SECONDS = 1.0
LONGEST_SECONDS = OWNER_TIMEOUT_SECONDS + 5.0 + LOOK_SECONDS + ANSWER_SECONDS
"""Without an owner."""
GRACE_SECONDS = 3.0
"""For this long a process that was suspended may end its work, of which the new owner lets nothing pass."""


@dataclass(slots=True, kw_only=True)
class Owners:
    """Who owns which flow, as the processes themselves say: one that is suspended or gone says nothing."""

    flows: Sequence[Rig]
    services: list[ServiceProcess]
    longest_seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)
    _owned_at: dict[str, float] = field(default_factory=dict)
    _two_since: dict[str, float] = field(default_factory=dict)
    are_all_owned: bool = False
    cut_off: ServiceProcess | None = None
    """From the target: it says what it was, because it cannot know of others; nor can it write."""

    async def watch(self) -> None:
        """Loop until cancelled."""
        while True:
            asked_at = time.monotonic()
            async with asyncio.TaskGroup() as group:
                answers = {
                    (flow.a, number): group.create_task(says_it_owns(flow, service), name="who owns it")
                    for flow in self.flows
                    for number, service in enumerate(self.services)
                    if service is not self.cut_off
                }
            self._look({at: answer.result() for at, answer in answers.items()}, asked_at)
            await quiet(LOOK_SECONDS)

    def _look(self, owns: dict[tuple[str, int], bool], asked_at: float) -> None:
        self.are_all_owned = True
        for flow in self.flows:
            count = sum(does for (each, _), does in owns.items() if each == flow.a)
            if count < 2:
                self._two_since.pop(flow.a, None)
            elif asked_at - self._two_since.setdefault(flow.a, asked_at) > GRACE_SECONDS:
                seconds = asked_at - self._two_since[flow.a]
                told = [number for (each, number), does in owns.items() if each == flow.a and does]
                self.wrong.append(f"{flow.a} has had the owners {told} for {seconds:.1f} s")
            since = self._owned_at.get(flow.a)
            if count:
                self._owned_at[flow.a] = asked_at
            self.are_all_owned &= count == 1
            if since is not None and asked_at - since > self.longest_seconds:
                self.longest_seconds = asked_at - since
                if self.longest_seconds > LONGEST_SECONDS:
                    self.wrong.append(f"{flow.a} had no owner for {self.longest_seconds:.1f} s")


async def says_it_owns(flow: Rig, service: ServiceProcess) -> bool:
    request = pb.ListFlowsRequest(from_owner_of=flow.flow)
    try:
        answer = await SourceServiceStub(service.channel).ListFlows(request, timeout=ANSWER_SECONDS)
    except grpc.aio.AioRpcError:
        return False
    return any(each.flow == flow.flow for each in answer.flows)


@dataclass(slots=True, kw_only=True)
class ReplicasChaos(Chaos):
    links: dict[str, CutLink]
    """The ways of one process, by cluster."""
    far_servers: dict[str, str]
    clocks: Iterator[Mapping[str, str]]
    """What shifts the clock of each process that starts."""
    more: list[Rig] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def flows(self) -> list[Rig]:
        return [self.rig, *self.more]

    def spread(self) -> None:
        """One source under several names: so many flows."""
        rig = self.rig
        aliases = [rig.a, *(unique_name("more") for _ in range(FLOWS - 1))]
        rig.extra["clusters"] = ", ".join([*aliases, rig.b])
        for alias in aliases[1:]:
            rig.extra[f"{alias}.bootstrap.servers"] = rig.source_servers
            rig.extra[f"{alias}->{rig.b}.enabled"] = "true"
        self.more = [replace(rig, a=alias) for alias in aliases[1:]]

    async def _one_life(self, configsync: ServiceProcess) -> None:
        async with AsyncExitStack() as stack:
            far: list[ServiceProcess] = []

            async def start() -> ServiceProcess:
                """One at a time goes the ways that can be cut."""
                is_far = not any(each in services for each in far)
                more = {f"{alias}.bootstrap.servers": at for alias, at in self.far_servers.items() if is_far}
                rig = replace(self.rig, environment=next(self.clocks))
                service = await stack.enter_async_context(rig.running(configsync, **more))
                far.extend([service] if is_far else [])
                return service

            services: list[ServiceProcess] = []
            while len(services) < REPLICAS:
                services.append(await start())
            owners = Owners(flows=self.flows, services=services)
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(owners.watch(), name="watch the owners")
                while not self._is_over:
                    await eventually(lambda: owners.are_all_owned, 120)
                    await quiet(self.dice.random() * self.longest_pause_seconds)
                    kind = self.dice.choice(self.kinds)
                    if kind == "replica":
                        victim = services.pop(self.dice.randrange(REPLICAS))
                        await self._end(victim)
                        services.append(await start())
                    elif kind == "cut":
                        alias = self.dice.choice(sorted(self.links))
                        self.links[alias].cut()
                        if alias == self.rig.b:
                            owners.cut_off = next((each for each in far if each in services), None)
                        await quiet(self.dice.choice(CUT_SECONDS))
                        self.links[alias].mend()
                        owners.cut_off = None
                    else:
                        await self._kill(kind, self.dice.choice(services))
                    self.outcome.kills[kind] += 1
                    sys.stderr.write(f"{kind}; longest without an owner {owners.longest_seconds:.1f} s\n")
                watch.cancel()
            self.wrong += owners.wrong


async def run_chaos(
    source: BlockingCluster, target: BlockingCluster, directory: Path, **chosen: Any
) -> SourceOutcome:
    """Clusters with far listeners."""
    async with open_rig(source, target, directory) as rig, AsyncExitStack() as stack:
        (directory / "sitecustomize.py").write_text(SHIFTED_CLOCK)
        links, servers = {}, {}
        for alias, cluster in ((rig.a, source), (rig.b, target)):
            far = cluster.spec.far
            assert far is not None
            links[alias] = await stack.enter_async_context(cut_link(far.advertised_port, far.port))
            servers[alias] = f"{ADDRESS}:{far.advertised_port}"
        chaos = ReplicasChaos(
            rig=rig,
            target=target,
            kills=1_000_000,
            kinds=KINDS,
            longest_pause_seconds=5.0,
            records_per_second=RECORDS_PER_SECOND,
            links=links,
            far_servers=servers,
            clocks=cycle(
                {"PYTHONPATH": str(directory), "CLOCK_AHEAD_SECONDS": str(seconds)}
                for seconds in CLOCKS_AHEAD_SECONDS
            ),
            **chosen,
        )
        chaos.spread()
        outcome = await chaos.run()
        if chaos.wrong:
            outcome.identical = False
            outcome.difference += "; ".join(chaos.wrong)[:500]
        return outcome


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--minutes", type=float, default=8.0)
    options = parser.parse_args()
    chosen = {"seed": options.seed, "longest_seconds": options.minutes * 60}
    specs = (ClusterSpec(name=name, far=far_listener()) for name in "AB")
    return play(lambda at, here: run_chaos(at[0], at[1], here, **chosen), *specs)


if __name__ == "__main__":
    sys.exit(main())
