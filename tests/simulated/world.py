"""Two clusters and the services of Twinlog in one event loop, in virtual time: one seed, one history.

async with World(tmp_path, PROPERTIES, seed=1) as world:
    world.on["A"].cluster.create_topic("orders")
    world.start(*SERVICES)
    await world.until(lambda: world.on["B"].read("orders") == …)
    await world.kill("source")
"""

import asyncio
import functools
import gc
import hashlib
import inspect
import os
import random
import time
from collections.abc import Callable, Coroutine, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self
from unittest.mock import patch

import grpc.aio
import structlog
from opentelemetry.metrics import NoOpMeterProvider

import twinlog_checkpoint.app
import twinlog_configsync.app
import twinlog_heartbeat.app
import twinlog_source.app
from simulated.clients import Applications
from simulated.process import Process, kill_elsewhere, kill_here, pid, task_factory
from simulated.tasks import SimulatedWorkers
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.api.configsync.v1 import configsync_service_pb2 as configsync
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.cli.common.names import CLOCK
from twinlog.cli.status.query import query_status
from twinlog.cli.status.rows import Status
from twinlog.errors import TwinlogError
from twinlog.service.app import Build, ServiceContext, ServiceParts, Surroundings, run_service
from twinlog.service.options import load_configuration, parse_options
from twinlog.testing.broker import FakeKafka
from twinlog.testing.broker.calls import KAFKA_4_3, Release
from twinlog.testing.broker.codec import Request
from twinlog.testing.broker.partitions import Node
from twinlog.testing.rpc import MemoryRpc, RpcNetwork
from twinlog.testing.virtual_time import LoopClock, run_in_virtual_time
from twinlog_source.driver.stream.worker_port import WorkerPort, endpoint_of
from twinlog_source.records.changing import MakePipe
from twinlog_source.records.pipe import record_pipe

ONE_BROKER = """
clusters = A, B
A.bootstrap.servers = {A}
B.bootstrap.servers = {B}
replication.factor = 1
offset-syncs.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset.storage.replication.factor = 1
"""
"""The beginning of a file for two clusters with one broker each."""
SERVICES = ("configsync", "source", "checkpoint", "heartbeat")
PORTS = {"source": 17401, "checkpoint": 17402, "heartbeat": 17403, "configsync": 17404}
_ENDPOINTS = {service: f"127.0.0.1:{port}" for service, port in PORTS.items()}
_LOOK_SECONDS = 0.5
TICK_SECONDS = 1e-6
"""Without it, a wait that is shorter than a float can tell would be over at once, again and again."""
_PATIENCE_SECONDS = 300.0
_MOST_AT_ONCE = 10_000
"""Requests in a second: who asks without a pause would not let virtual time go on."""


class World:
    """`properties` name the brokers of cluster X `{X}`."""

    def __init__(
        self,
        directory: Path,
        properties: str,
        *,
        seed: int = 0,
        aliases: Sequence[str] = "AB",
        node_count: int = 1,
        release: Release = KAFKA_4_3,
        slots: int = 2,
        make_pipe: MakePipe = record_pipe,
        cluster: asyncio.Semaphore | None = None,
    ) -> None:
        self.file = directory / "mm2.properties"
        self.logged: list[dict[str, Any]] = []
        """What services and tasks have logged, but for details."""
        self.rpc = RpcNetwork()
        self.services: dict[str, Process] = {}
        self.refusal: TwinlogError | None = None
        """Why Spark refuses the flow's expressions."""
        self.contexts: dict[str, ServiceContext] = {}
        """What the processes of `services` have from their runtime."""
        self.tasks: SimulatedWorkers | None = None
        """Those of the source service that started last."""
        self._tasks: dict[str, SimulatedWorkers] = {}
        self.properties = properties
        self._slots = slots
        self._make_pipe = make_pipe
        self._cluster = cluster
        """The free cores of a Spark cluster; None = Spark is in the service."""
        self._asked: dict[str, asyncio.Event] = {}
        self._stack = AsyncExitStack()
        random.seed(seed)
        self.kafka = {
            alias: FakeKafka(name=alias.lower(), node_count=node_count, seed=seed + number, release=release)
            for number, alias in enumerate(aliases)
        }
        self.requests: list[tuple[float, str, int, str, int]] = []
        """All requests to brokers: time, cluster, broker, client id, API key."""
        for alias, kafka in self.kafka.items():
            kafka.on_request = partial(self._take_request, alias)
        self.on = {alias: Applications(kafka.cluster) for alias, kafka in self.kafka.items()}

    async def __aenter__(self) -> Self:
        asyncio.get_running_loop().set_task_factory(task_factory)
        structlog.configure(
            processors=[self._take_log], wrapper_class=structlog.make_filtering_bound_logger(20)
        )
        for kafka in self.kafka.values():
            await self._stack.enter_async_context(kafka)
        places = {alias: kafka.bootstrap for alias, kafka in self.kafka.items()}
        self.file.write_text(self.properties.format(**places))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self.services):
            await self.kill(name)
        await self._stack.__aexit__(kind, error, trace)
        structlog.reset_defaults()

    def start(self, *names: str, arguments: tuple[str, ...] = (), clock: LoopClock | None = None) -> None:
        """Start services; "source 2" is another process of the service source."""
        for name in names:
            service = name.split()[0]
            process = self.services[name] = Process(name, self.rpc)
            self._asked[name] = asyncio.Event()
            argv = ["--config", str(self.file), *arguments]
            main = run_service(
                service,
                partial(self._built, name, self._build(service, process)),
                load_configuration(service, parse_options(service, argv, environment={}), environment={}),
                Surroundings(
                    clock=clock or LoopClock(),
                    meter=NoOpMeterProvider().get_meter("simulated"),
                    instance_id=f"{random.getrandbits(128):032x}",
                    rpc=process.rpc,
                ),
                asked=self._asked[name],
            )
            process.main = process.start(main)

    async def stop(self, name: str) -> None:
        """As SIGTERM; returns when the service has ended."""
        self._asked.pop(name).set()
        main = self.services.pop(name).main
        assert main is not None
        await main

    async def kill(self, name: str) -> None:
        """As SIGKILL. The tasks of a source service die with it."""
        if name in self._tasks:
            await self._tasks.pop(name).close()
        await self.services.pop(name).kill()

    def bar(self, name: str, *aliases: str) -> None:
        """A process, with its tasks, reaches these clusters no more, and all others."""
        hosts = {node.host for alias in aliases for node in self.kafka[alias].cluster.nodes.values()}
        process = self.services[name]
        process.cable.barred.clear()
        for each in (process, *(self._tasks[name].running.values() if name in self._tasks else ())):
            each.cable.bar(hosts)

    async def kill_tasks(self) -> None:
        assert self.tasks is not None
        await self.tasks.close()

    async def kill_tasks_of(self, name: str) -> None:
        """Those of a source service, if it has begun any."""
        if name in self._tasks:
            await self._tasks[name].close()

    async def until(self, condition: Callable[[], object], seconds: float = _PATIENCE_SECONDS) -> None:
        """Wait until it holds, for this long at most. Raises what a service has ended with."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + seconds
        while not condition():
            for process in self.services.values():
                if process.main is not None and process.main.done():
                    process.main.result()
            if loop.time() >= give_up_at:
                raise AssertionError(f"not within {seconds:g} s: {condition}; logged: {self.logged[-20:]}")
            await self.pause(_LOOK_SECONDS)

    def logs(self) -> dict[tuple[str, str, int], bytes]:
        """Every byte of every log, by cluster, topic and partition."""
        return {
            (alias, topic.name, partition.index): b"".join(each.data for each in partition.log.batches)
            for alias, applications in self.on.items()
            for topic in applications.cluster.topics.values()
            for partition in topic.partitions
        }

    def digest(self) -> str:
        """Of every request in its order, and every byte of every log."""
        return hashlib.sha256(repr((self.requests, self.logs())).encode()).hexdigest()[:16]

    async def move(self, kind: str, *, flow: str = "A->B", **options: Any) -> list[Any]:
        """Run a failover or a failback; returns what the checkpoint service told."""
        source, target = flow.split("->")
        asked: dict[str, Any] = {"flow": {"source": source, "target": target}, "options": options}
        async with self._open("checkpoint", _ENDPOINTS["checkpoint"]) as channel:
            stub = CheckpointServiceStub(channel)
            if kind == "failover":
                return [event async for event in stub.RunFailover(pb2.RunFailoverRequest(**asked))]
            return [event async for event in stub.RunFailback(pb2.RunFailbackRequest(**asked))]

    async def order(self, name: str, request: Any, *, port: int = PORTS["source"]) -> Any:
        """Call a method of the source service."""
        async with self._open("source", f"127.0.0.1:{port}") as channel:
            return await getattr(SourceServiceStub(channel), name)(request, timeout=60)

    async def rule(self, flow: str, key: str, value: str, *, port: int = PORTS["configsync"]) -> None:
        """`twinlog rules set`."""
        change = configsync.RuleChange(key=key, operation=configsync.RULE_OPERATION_SET, value=value)
        asked: dict[str, Any] = {"flow": dict(zip(("source", "target"), flow.split("->"), strict=True))}
        async with self._open("configsync", f"127.0.0.1:{port}") as channel:
            request = configsync.UpdateRulesRequest(changes=[change], **asked)
            await ConfigSyncServiceStub(channel).UpdateRules(request, timeout=60)

    async def status(self) -> Status:
        """What `twinlog status` shows."""
        clock = CLOCK.set(LoopClock())
        try:
            return await query_status(_ENDPOINTS, self._open, timeout_seconds=30)
        finally:
            CLOCK.reset(clock)

    async def groups(self) -> dict[tuple[str, str, int], pb2.GroupPartition]:
        """What is shown of groups, by group and partition of the target."""
        async with self._open("checkpoint", _ENDPOINTS["checkpoint"]) as channel:
            answer = await CheckpointServiceStub(channel).ListGroups(pb2.ListGroupsRequest())
        return {(each.group, each.target.topic, each.target.partition): each for each in answer.groups}

    def _open(self, _service: str, endpoint: str) -> grpc.aio.Channel:
        return MemoryRpc(self.rpc).insecure_channel(endpoint)

    def now(self) -> float:
        """Virtual seconds since the begin."""
        return asyncio.get_running_loop().time()

    async def pause(self, seconds: float) -> None:
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=seconds)

    async def _built(
        self, name: str, build: Build, context: ServiceContext, stack: AsyncExitStack
    ) -> ServiceParts:
        self.contexts[name] = context
        return await build(context, stack)

    def _build(self, service: str, process: Process) -> Build:
        if service == "source":
            return partial(twinlog_source.app.build_on, partial(self._run_tasks, process))
        modules = {
            "checkpoint": twinlog_checkpoint.app,
            "configsync": twinlog_configsync.app,
            "heartbeat": twinlog_heartbeat.app,
        }
        build: Build = modules[service].build
        return build

    def _run_tasks(
        self,
        driver: Process,
        context: ServiceContext,
        _flows: object,
        port: WorkerPort,
        stack: AsyncExitStack,
    ) -> SimulatedWorkers:
        def new_process(name: str) -> Process:
            process = Process(name, self.rpc)
            process.cable.barred = driver.cable.barred
            return process

        self.tasks = self._tasks[driver.name] = SimulatedWorkers(
            new_process,
            slots=self._slots,
            endpoint=lambda: endpoint_of(context.configuration, port.number),
            certificate=port.certificate,
            clock=context.clock,
            make_pipe=self._make_pipe,
            refusal=lambda: self.refusal,
            cluster=self._cluster,
        )
        stack.push_async_callback(self.tasks.close)
        return self.tasks

    def _take_request(self, alias: str, node: Node, request: Request) -> None:
        now = asyncio.get_running_loop().time()
        if len(self.requests) > _MOST_AT_ONCE and now - self.requests[-_MOST_AT_ONCE][0] < 1:
            raise AssertionError(f"{_MOST_AT_ONCE} requests in a second")
        self.requests.append((now, alias, node.node_id, request.client_id or "", request.api_key))

    def _take_log(self, _logger: object, level: str, event: MutableMapping[str, Any]) -> NoReturn:
        self.logged.append({"at": asyncio.get_running_loop().time(), "level": level, **event})
        raise structlog.DropEvent


def live(life: Coroutine[Any, Any, None], *, machines_differ: bool = False) -> None:
    """Run a history in virtual time; also libraries have its clock, and ids that the seed decides. Nothing is
    collected as garbage meanwhile: that takes a third of the time, at moments that differ."""
    clock = LoopClock()
    edges: dict[Any, dict[str, Any]] = {
        time: {
            "time": lambda: clock.now_ms() / 1000,
            "time_ns": lambda: clock.now_ms() * 1_000_000,
            "monotonic": clock.monotonic,
        },
        os: {
            "getpid": pid,
            "urandom": random.randbytes,
            "kill": kill_elsewhere if machines_differ else kill_here,
        },
    }
    with ExitStack() as stack:
        for module, functions in edges.items():
            stack.enter_context(patch.multiple(module, **functions))
        gc.disable()
        stack.callback(gc.enable)
        run_in_virtual_time(life, tick_seconds=TICK_SECONDS)


def lives_in(
    make: Callable[..., AbstractAsyncContextManager[Any]],
    *arguments: Any,
    machines_differ: bool = False,
    **options: Any,
) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Makes a test of a history: `make` opens its world in the test's directory. What it opens are the
    history's first arguments; those by keyword only are the test's own."""

    def as_test(history: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        def test(tmp_path: Path, **given: Any) -> None:
            async def life() -> None:
                async with make(tmp_path, *arguments, **options) as made:
                    await history(*(made if isinstance(made, tuple) else (made,)), **given)

            live(life(), machines_differ=machines_differ)

        own = [
            each for each in inspect.signature(history).parameters.values() if each.kind is each.KEYWORD_ONLY
        ]
        functools.update_wrapper(test, history)
        del vars(test)["__wrapped__"]
        directory = inspect.Parameter("tmp_path", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        vars(test)["__signature__"] = inspect.Signature([directory, *own])
        return test

    return as_test
