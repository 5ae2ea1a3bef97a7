"""Runs a service from main to its loops: options, configuration, telemetry, clusters, gRPC, and an orderly
shutdown.

Each service calls `service_main(name, build)` from its `__main__`. `build` (its composition root) gets a
ServiceContext and returns the service's loops and gRPC services as ServiceParts.
"""

import asyncio
import contextlib
import gc
import hashlib
import logging
import os
import random
import resource
import socket
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import structlog
from opentelemetry.metrics import Meter, Observation

from twinlog import __version__, properties
from twinlog.clock import Clock, SystemClock
from twinlog.config import ClientConfig, Configuration, NoticeLevel, Service
from twinlog.errors import ConfigError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster
from twinlog.loops import looping_flows, refuse_loops
from twinlog.model import ClusterAlias, Flow
from twinlog.service.access.gate import open_port_access
from twinlog.service.access.pem_files import Pem
from twinlog.service.answering_process import AnsweringProcess
from twinlog.service.clusters import Clusters
from twinlog.service.credentials import LoginCertificates, Tokens
from twinlog.service.grpc_server import GrpcServer, GrpcService
from twinlog.service.options import load_configuration, parse_options
from twinlog.service.owner.membership import Membership
from twinlog.service.owner.servicer import FlowStandings, owners_service
from twinlog.service.peers import Peers
from twinlog.service.rpc import GRPC, Rpc
from twinlog.service.runtime import Backoff, Loop, handle_signals, supervise
from twinlog.service.waiting import wait_or_stop
from twinlog.telemetry import instruments
from twinlog.telemetry.exporter import open_telemetry
from twinlog.telemetry.logging import REDACTED, blank_secrets, configure_logging, is_secret_key, toggle_debug
from twinlog.telemetry.metrics.service import CERTIFICATE_EXPIRY, CERTIFICATE_LIFETIME, SERVICE_READY
from twinlog.telemetry.metrics.spec import TWINLOG_SERVICE, MetricSpec
from twinlog.telemetry.process import observe_process

_log = structlog.stdlib.get_logger(__name__)

EXIT_CLEAN = 0
EXIT_CRASH = 1
EXIT_BAD_CONFIG = 2
GC_THRESHOLDS = (20_000, 20, 50)
"""Services keep an object or more for each partition and each offset of a group, and create new ones with
every look at a cluster. With Python's thresholds (700, 10, 10) the collector scans the long-lived objects
again and again: that took up to half of a pass over groups, and a fifth of the cost of idle flows."""


@dataclass(slots=True, kw_only=True)
class BoundPort:
    """The port of the service's own gRPC server."""

    number: int = 0
    """0 until it is bound, which happens before the first loop runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a service has from its process, and from elsewhere where it runs in virtual time."""

    clock: Clock
    meter: Meter
    instance_id: str
    """Random for each process start; names the history of its resume tokens."""
    rpc: Rpc = GRPC


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceContext:
    """What the runtime gives a service; the runtime closes all of it."""

    name: str
    """ "source", "checkpoint", "heartbeat" or "configsync"."""
    configuration: Configuration
    around: Surroundings
    stop: asyncio.Event
    """Set when the service must stop; loops and watch streams end then."""
    clusters: Clusters
    peers: Peers
    standings: FlowStandings
    """Ownership of the flows, for metrics and readiness; `open_lease` enters it."""
    bound: BoundPort = field(default_factory=BoundPort)
    memberships: dict[ClusterAlias, Membership] = field(default_factory=dict)
    """By target; `open_lease` enters them."""

    @property
    def clock(self) -> Clock:
        return self.around.clock

    @property
    def meter(self) -> Meter:
        return self.around.meter

    @property
    def instance_id(self) -> str:
        return self.around.instance_id

    def backoff(self, initial_seconds: float, max_seconds: float) -> Backoff:
        """A back-off with real randomness."""
        return Backoff(initial_seconds=initial_seconds, max_seconds=max_seconds, random=random.random)


def _done(_flow: Flow) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceParts:
    """The parts of a service."""

    loops: Mapping[str, Loop]
    grpc: Sequence[GrpcService]
    ready: Callable[[], bool] = field(default=lambda: True)
    """True once the service can answer RPCs. Must never wait for brokers or peers."""
    first_pass_done: Callable[[Flow], bool] = field(default=_done)
    """Whether the first pass over a flow of this process is done; readiness waits for it. Thread-safe."""


Build = Callable[[ServiceContext, AsyncExitStack], Awaitable[ServiceParts]]
"""Builds and connects. The stack closes what is entered into it after the loops, in reverse order."""


def service_main(name: str, build: Build, argv: Sequence[str] | None = None) -> int:
    """Run a service until it is told to stop. Returns 0 for a clean stop, 1 for a crash, 2 for an invalid
    file."""
    options = parse_options(name, argv, environment=os.environ)
    try:
        configuration = load_configuration(name, options, environment=os.environ)
        refuse_loops(configuration)
        if options.notices_told:
            configuration = replace(configuration, notices=())
    except ConfigError as error:
        sys.stderr.write(f"twinlog-{name}: {error}\n")
        return EXIT_BAD_CONFIG
    configure_logging(
        service=name,
        version=__version__,
        format=configuration.runtime.log_format,
        level=configuration.runtime.log_level,
    )
    _leave_no_core_file()
    _allow_files()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        asyncio.run(_run(name, build, configuration, port_file=options.port_file))
    except asyncio.CancelledError:
        _log.error("stopped", outcome="forced", message="a second signal cut the drain short")
        return EXIT_CRASH
    except Exception as error:  # noqa: BLE001 (the process's own boundary: every end has an exit code)
        refusals = _config_errors(error)
        for refusal in refusals:
            sys.stderr.write(f"twinlog-{name}: {refusal}\n")
        _log.error(
            "stopped", outcome="refused" if refusals else "crashed", exc_info=None if refusals else error
        )
        return EXIT_BAD_CONFIG if refusals else EXIT_CRASH
    return EXIT_CLEAN


async def _run(name: str, build: Build, configuration: Configuration, *, port_file: Path | None) -> None:
    settings = configuration.runtime
    clock = SystemClock()
    started = clock.monotonic()
    asked = asyncio.Event()
    main = asyncio.current_task()
    assert main is not None

    def ask(signal_name: str) -> None:
        _log.info("stopping", signal=signal_name, drain_seconds=settings.drain_seconds)
        asked.set()

    def force(signal_name: str) -> None:
        _log.warning("stopping_now", signal=signal_name)
        main.cancel()

    def details() -> None:
        _log.warning("log_level_changed", log_level=toggle_debug(settings.log_level))

    own = configuration.endpoints[Service(name)]
    instance_id = uuid.uuid4().hex
    with (
        handle_signals(on_first=ask, on_second=force, on_details=details),
        open_telemetry(
            service=name,
            version=__version__,
            instance_id=instance_id,
            listen=own.metrics_listen,
            make_way=own.metrics_is_default,
        ) as telemetry,
    ):
        observe_process(telemetry.meter)
        around = Surroundings(clock=clock, meter=telemetry.meter, instance_id=instance_id)
        await run_service(
            name,
            build,
            configuration,
            around,
            asked=asked,
            port_file=port_file,
            on_built=_leave_out_of_collections,
        )
    _log.info("stopped", outcome="clean", seconds=round(clock.monotonic() - started, 3))


async def run_service(
    name: str,
    build: Build,
    configuration: Configuration,
    around: Surroundings,
    *,
    asked: asyncio.Event,
    port_file: Path | None = None,
    on_built: Callable[[], None] = lambda: None,
) -> None:
    """Run a service until `asked` is set, and drain it then. `on_built` is called once its parts are built
    and its port is open. Raises as `supervise`, and ConfigError."""
    settings = configuration.runtime
    stop = asyncio.Event()
    # Before connecting anything: a port without valid security is a configuration error.
    access = open_port_access(configuration, Service(name))
    async with AsyncExitStack() as stack:
        context = _open_context(name, configuration, stack, around, stop=stop)
        parts = await build(context, stack)

        def works() -> bool:
            return parts.ready() and context.standings.is_ready(parts.first_pass_done)

        instruments.gauge(
            context.meter,
            SERVICE_READY,
            lambda: [Observation(int(works()), {TWINLOG_SERVICE: name})],
        )
        server = GrpcServer(
            [*parts.grpc, owners_service(context.memberships)],
            service=name,
            listen=configuration.endpoints[Service(name)].listen,
            meter=context.meter,
            ready=parts.ready,
            works=works,
            port_file=port_file,
            hindrance=context.clusters.hindrance,
            access=access,
            process=_this_process(configuration),
            rpc=around.rpc,
        )
        _observe_certificate(context.meter, server, around.clock)
        stack.push_async_callback(server.stop, 0.0)
        await server.start()
        context.bound.number = server.port
        on_built()

        async def serve(stop: asyncio.Event) -> None:
            await stop.wait()
            # Less than the loops' grace: a call that hangs is cut while its loops still drain.
            await server.stop(settings.grace_seconds * 0.8)

        async def drain(stop: asyncio.Event) -> None:
            await asked.wait()
            await server.leave()
            await wait_or_stop(stop, settings.drain_seconds)
            stop.set()

        runtime_loops: dict[str, Loop] = {
            "probe-clusters": context.clusters.probe,
            "health": server.watch_readiness,
            "certificate": server.renew_certificate,
            "connections": context.peers.tidy,
            "grpc": serve,
            "drain": drain,
            **{f"owners on {alias}": each.run for alias, each in context.memberships.items()},
        }
        try:
            await supervise({**parts.loops, **runtime_loops}, stop=stop, grace_seconds=settings.grace_seconds)
        finally:
            stop.set()


def _this_process(configuration: Configuration) -> AnsweringProcess:
    file = str(Path(configuration.file).resolve())
    return AnsweringProcess(host=socket.gethostname(), pid=os.getpid(), config=file)


def _observe_certificate(meter: Meter, server: GrpcServer, clock: Clock) -> None:
    def publish(spec: MetricSpec, seconds: Callable[[Pem], float]) -> None:
        def observations() -> list[Observation]:
            return [] if (pem := server.certificate) is None else [Observation(seconds(pem))]

        instruments.gauge(meter, spec, observations)

    publish(CERTIFICATE_EXPIRY, lambda pem: pem.expires.timestamp() - clock.now_ms() / 1000)
    publish(CERTIFICATE_LIFETIME, lambda pem: pem.lifetime_seconds)


def _open_context(
    name: str,
    configuration: Configuration,
    stack: AsyncExitStack,
    around: Surroundings,
    *,
    stop: asyncio.Event,
) -> ServiceContext:
    clock, meter = around.clock, around.meter
    clusters = Clusters(
        _clusters_of_flows(configuration),
        open_cluster=partial(_open_cluster, clock.now_ms),
        stack=stack,
        clock=clock,
        find_loops=partial(looping_flows, configuration),
    )
    clusters.observe(meter)
    logins = {alias: client.properties for alias, client in _clusters_of_flows(configuration).items()}
    LoginCertificates(logins, clock=clock).observe(meter)
    Tokens(logins, token_file=configuration.security.client.token_file, clock=clock).observe(meter)
    _log.info(
        "starting",
        pid=os.getpid(),
        instance_id=around.instance_id,
        config=configuration.file,
        config_sha256=fingerprint(configuration.file),
        clusters={
            alias: ",".join(client.bootstrap_servers)
            for alias, client in _clusters_of_flows(configuration).items()
        },
        flows=[str(entry.flow) for entry in configuration.flows],
        listen=str(configuration.endpoints[Service(name)].listen),
    )
    for notice in configuration.notices:
        level = logging.WARNING if notice.level is NoticeLevel.WARNING else logging.INFO
        _log.log(level, "configuration_notice", key=notice.key, line=notice.line, message=notice.text)
    return ServiceContext(
        name=name,
        configuration=configuration,
        around=around,
        stop=stop,
        clusters=clusters,
        peers=Peers(
            {str(peer): str(entry.endpoint) for peer, entry in configuration.endpoints.items()},
            stack,
            security=lambda peer: configuration.security.to_call(Service(peer), own=Service(name)),
            rpc=around.rpc,
        ),
        standings=FlowStandings.observed(name, meter),
    )


def _leave_out_of_collections() -> None:
    """Exempt all objects made so far, mostly modules, from garbage collection."""
    gc.collect()
    gc.freeze()


def _leave_no_core_file() -> None:
    """Prevent core files, which would hold passwords and records. Child processes inherit the limit."""
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))


def _allow_files() -> None:
    """Use as many files as the system allows: connections of callers must not take those of brokers."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS refuses a limit that it names itself, "infinite".
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def fingerprint(file: str) -> str:
    """A hash that tells two versions of a file apart in the log. It leaves out secrets, so that a reader of
    the log cannot test guesses. Empty when the file is gone: it has been read already."""
    try:
        entries = properties.parse(Path(file).read_bytes(), file=file).entries
    except (OSError, ConfigError):
        return ""
    lines = (
        f"{key}={REDACTED if is_secret_key(key) else blank_secrets(entry.value)}\n"
        for key, entry in sorted(entries.items())
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:12]


def _clusters_of_flows(configuration: Configuration) -> dict[ClusterAlias, ClientConfig]:
    """The aliases of this process's flows, with the admin settings for each."""
    flows = [entry.flow for entry in configuration.flows]
    aliases = dict.fromkeys(alias for flow in flows for alias in (flow.source, flow.target))
    return {alias: configuration.clusters[alias].admin for alias in aliases}


def _open_cluster(
    now_ms: Callable[[], int], config: ClientConfig, timeout_seconds: float | None
) -> KafkaCluster:
    return open_cluster(config.alias, config.properties, timeout_seconds=timeout_seconds, now_ms=now_ms)


def _config_errors(error: BaseException) -> list[ConfigError]:
    """The ConfigErrors in a failure that consists of nothing else."""
    if isinstance(error, ConfigError):
        return [error]
    if not isinstance(error, BaseExceptionGroup):
        return []
    found = [_config_errors(member) for member in error.exceptions]
    return [leaf for leaves in found for leaf in leaves] if all(found) else []
