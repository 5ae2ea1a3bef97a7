"""Plans the children from the command line of `twinlog run`. Finds every error before any child starts."""

import contextlib
import errno
import os
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from twinlog.config import Address, Configuration, Notice, NoticeLevel, Service, ServiceEndpoints, load
from twinlog.config.load import same_address
from twinlog.errors import ConfigError
from twinlog.loops import refuse_loops
from twinlog.service.access.exposure import refuse_open_port
from twinlog.service.options import parse_flows, parse_override
from twinlog.supervisor.children import Program
from twinlog.supervisor.runs import LivingRun, living_runs
from twinlog.supervisor.supervisor import PROBE

# Finds and reserves the address of every child before any of them starts.

Bind = Callable[[Address], Address]
"""Binds an address and returns it with its real port. Raises OSError."""

_WILDCARDS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 (compared with, not bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAddress:
    listen: Address
    """With the real port."""
    endpoint: Address
    """The address for peers and the command line."""
    local: Address
    """The address for this machine, whatever lies between the service and others."""
    metrics: Address | None = None
    """The address of the service's metrics, with the real port; None = not known in advance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Other runs on this machine."""

    holders: Mapping[str, str] = field(default_factory=dict)
    """Their addresses -> the text that names the holder, also while nothing listens there."""
    make_way: bool = False
    """Take a free port when a default one is taken."""


def reserve_addresses(
    endpoints: Mapping[Service, ServiceEndpoints],
    services: Collection[Service],
    stack: ExitStack,
    *,
    neighbours: Neighbours | None = None,
) -> dict[Service, ServiceAddress]:
    """Bind (without listening) the address of every service; port 0 becomes a free one. `stack` closes the
    sockets.

    While a socket is bound with SO_REUSEADDR and does not listen, a child that binds with SO_REUSEADDR, as
    gRPC does, gets the port, the kernel gives it to no other program, and a restarted child finds it free.

    Raises ConfigError (ADDRESS_IN_USE) that names `twinlog.<service>.listen` when another process has the
    address, and both keys when the configuration gives one address twice.
    """
    others = neighbours or Neighbours()
    _refuse_one_address_twice(endpoints, services)
    own: list[Address] = []

    def bind(wanted: Address) -> Address:
        # Sockets that do not listen do not conflict: the kernel would give the address twice.
        if any(wanted.excludes(taken) for taken in own):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        own.append(_bind(wanted, stack, others))
        return own[-1]

    # Configured addresses come before defaults, and both before metrics, which can move.
    in_order = sorted(services, key=lambda service: endpoints[service].listen_is_default)
    listens = {service: _listen(service, endpoints[service], bind, others) for service in in_order}
    in_order = sorted(services, key=lambda service: endpoints[service].metrics_is_default)
    metrics = {service: _metrics_address(endpoints[service], bind) for service in in_order}
    return {
        service: _service_address(listens[service], metrics[service], endpoints[service])
        for service in services
    }


def child_overrides(addresses: Mapping[Service, ServiceAddress]) -> dict[str, str]:
    """Properties that tell every child its own address and those of its peers."""
    overrides: dict[str, str] = {}
    for service, address in addresses.items():
        overrides[f"twinlog.{service}.listen"] = str(address.listen)
        overrides[f"twinlog.{service}.endpoint"] = str(address.endpoint)
        if address.metrics is not None:
            overrides[f"twinlog.{service}.metrics.listen"] = str(address.metrics)
    return overrides


def _refuse_one_address_twice(
    endpoints: Mapping[Service, ServiceEndpoints], services: Collection[Service]
) -> None:
    """All services of a run are on one machine. Checks configured addresses only: a default one moves."""
    seen: list[tuple[str, Address]] = []
    for service in services:
        entry = endpoints[service]
        chosen = [(f"twinlog.{service}.listen", entry.listen, entry.listen_is_default)]
        if entry.metrics_listen is not None:
            key = f"twinlog.{service}.metrics.listen"
            chosen.append((key, entry.metrics_listen, entry.metrics_is_default))
        for key, address, is_default in chosen:
            if is_default:
                continue
            for other, taken in seen:
                if address.excludes(taken):
                    raise same_address(key, other, address)
            seen.append((key, address))


def _listen(service: Service, configured: ServiceEndpoints, bind: Bind, neighbours: Neighbours) -> Address:
    key = f"twinlog.{service}.listen"
    try:
        return bind(configured.listen)
    except OSError as error:
        is_in_use = error.errno == errno.EADDRINUSE
        if not (is_in_use and neighbours.make_way and configured.listen_is_default):
            raise ConfigError(
                f"{key}: {_why(error, configured.listen, service, neighbours)}",
                reason="ADDRESS_IN_USE" if is_in_use else "ADDRESS_INVALID",
                metadata={"key": key, "address": str(configured.listen)},
            ) from error
        return bind(Address(host=configured.listen.host, port=0))


def _service_address(
    listen: Address, metrics: Address | None, configured: ServiceEndpoints
) -> ServiceAddress:
    local = Address(host=_WILDCARDS.get(listen.host, listen.host), port=listen.port)
    follows_listen = configured.endpoint.port == 0 or configured.endpoint == configured.listen
    endpoint = local if follows_listen else configured.endpoint
    return ServiceAddress(listen=listen, endpoint=endpoint, local=local, metrics=metrics)


def _metrics_address(configured: ServiceEndpoints, bind: Bind) -> Address | None:
    """None when a configured address is not available: the service logs that and runs without metrics."""
    wanted = configured.metrics_listen
    if wanted is None:
        return None
    for port in (wanted.port, 0) if configured.metrics_is_default else (wanted.port,):
        with contextlib.suppress(OSError):
            return bind(Address(host=wanted.host, port=port))
    return None


def _bind(wanted: Address, stack: ExitStack, neighbours: Neighbours) -> Address:
    """The address with its real port; `stack` closes the socket. Raises OSError."""
    if str(wanted) in neighbours.holders:
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    family, kind, protocol, _, address = socket.getaddrinfo(
        wanted.host.strip("[]"), wanted.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    holder = stack.enter_context(socket.socket(family, kind, protocol))
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(address)
    return Address(host=wanted.host, port=int(holder.getsockname()[1]))


def _why(error: OSError, listen: Address, service: Service, neighbours: Neighbours) -> str:
    if error.errno == errno.EADDRINUSE:
        holder = neighbours.holders.get(str(listen), "another process")
        return (
            f"{listen} is in use by {holder}."
            f" Choose another port, or `twinlog.{service}.listen = {listen.host}:0` for any free one."
        )
    return f"cannot listen on {listen}: {error.strerror or error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    config: Path
    flows: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    """By name; empty = all."""
    overrides: tuple[str, ...] = ()
    """`key=value`."""
    strict: bool = False
    log_format: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    configuration: Configuration
    addresses: Mapping[Service, ServiceAddress]
    services: tuple[Program, ...]
    probe: Program
    """Ends once all services serve."""

    def as_living_run(self, pid: int) -> LivingRun:
        """The public facts of this run, in process `pid`."""
        return LivingRun(
            pid=pid,
            config=str(Path(self.configuration.file).resolve()),
            listens={str(service): str(address.listen) for service, address in self.addresses.items()},
            endpoints={str(service): str(address.endpoint) for service, address in self.addresses.items()},
            metrics={
                str(service): str(address.metrics)
                for service, address in self.addresses.items()
                if address.metrics is not None
            },
        )

    @property
    def moved(self) -> dict[str, tuple[Address, Address]]:
        """By key, default addresses that were taken: that address and the new one."""
        found = {}
        for service, address in self.addresses.items():
            wanted = self.configuration.endpoints[service]
            for key, was, now in (
                (f"twinlog.{service}.listen", wanted.listen, address.listen),
                (f"twinlog.{service}.metrics.listen", wanted.metrics_listen, address.metrics),
            ):
                if was is not None and now is not None and was.port not in (0, now.port):
                    found[key] = was, now
        return found

    @property
    def notices(self) -> Sequence[Notice]:
        """Those of the file, and that it copies nothing."""
        if self.configuration.enabled_flows:
            return self.configuration.notices
        one, other, *_ = [*self.configuration.clusters, "A", "B"]
        text = f"no flow is enabled, so only heartbeats are written: write {one}->{other}.enabled = true"
        told = Notice(level=NoticeLevel.WARNING, key="enabled", line=0, text=text)
        return *self.configuration.notices, told

    @property
    def ready_line(self) -> str:
        """`ready: 1 flow(s) A->B; source=127.0.0.1:17401 …`, with addresses for `--endpoint`."""
        flows = [str(entry.flow) for entry in self.configuration.enabled_flows]
        places = " ".join(f"{service}={address.endpoint}" for service, address in self.addresses.items())
        return f"ready: {len(flows)} flow(s) {' '.join(flows) or '(heartbeats only)'}; {places}"

    @property
    def metrics_line(self) -> str:
        """`metrics: source=http://127.0.0.1:17411/metrics …`; empty when no service serves metrics."""
        places = [
            f"{service}=http://{address.metrics}/metrics"
            for service, address in self.addresses.items()
            if address.metrics is not None
        ]
        return f"metrics: {' '.join(places)}" if places else ""


def plan_run(request: RunRequest, *, environment: Mapping[str, str], stack: ExitStack) -> RunPlan:
    """Read and check everything, reserve the addresses. Raises ConfigError; nothing has started then."""
    overrides = dict(parse_override(text) for text in request.overrides)
    if request.log_format is not None:
        overrides["twinlog.log.format"] = request.log_format
    configuration = load(
        request.config,
        environ=environment,
        only_flows=parse_flows(request.flows) or None,
        only_targets=request.clusters or None,
        overrides=overrides,
        strict=request.strict,
    )
    services = _services(request.services)
    refuse_loops(configuration)
    for service in services:
        refuse_open_port(configuration, Service(service))
    runs = living_runs()
    _refuse_a_second_run(request, configuration, services, runs)
    # A partial run must be where its peers expect it, so only a complete run moves.
    neighbours = Neighbours(holders=_holders(runs), make_way=not request.services)
    addresses = reserve_addresses(configuration.endpoints, services, stack, neighbours=neighbours)
    overrides |= child_overrides(addresses)
    services_arguments = ("--notices-told", *_arguments(request, overrides))
    places = [f"{service}={address.local}" for service, address in addresses.items()]
    return RunPlan(
        configuration=configuration,
        addresses=addresses,
        services=tuple(
            Program(name=service, module=f"twinlog_{service}", arguments=services_arguments)
            for service in services
        ),
        probe=Program(
            name=PROBE,
            module="twinlog.service.probe",
            arguments=("--wait", *_of_file(request, overrides), *places),
        ),
    )


def _refuse_a_second_run(
    request: RunRequest,
    configuration: Configuration,
    services: Sequence[Service],
    runs: Sequence[LivingRun],
) -> None:
    """A second run of the same services and file on default addresses is most likely a mistake."""
    for run in runs:
        if not run.is_of(request.config):
            continue
        for service in services:
            if service in run.listens and configuration.endpoints[service].listen_is_default:
                raise ConfigError(
                    f"{request.config} is already running, as process {run.pid}: stop that first. To run it"
                    " twice on"
                    f" purpose give the second its own addresses, as `--set twinlog.{service}.listen="
                    "127.0.0.1:0`.",
                    reason="RUNS_ALREADY",
                    metadata={"file": str(request.config), "pid": str(run.pid)},
                )


def _holders(runs: Sequence[LivingRun]) -> dict[str, str]:
    return {
        listen: f"`twinlog run {run.config}` (process {run.pid})"
        for run in runs
        for listen in (*run.listens.values(), *run.metrics.values())
    }


def _services(names: tuple[str, ...]) -> tuple[Service, ...]:
    known = [str(service) for service in Service]
    for name in names:
        if name not in known:
            raise ConfigError(
                f"--service {name}: there is no such service; choose from {', '.join(known)}", key="--service"
            )
    services = tuple(service for service in Service if not names or service in names)
    for service in services:
        if find_spec(f"twinlog_{service}") is None:
            raise ConfigError(
                f"the {service} service is not installed here: install twinlog-{service}, or name the"
                f" other services with --service",
                reason="SERVICE_NOT_INSTALLED",
                metadata={"service": service},
            )
    return services


def _of_file(request: RunRequest, overrides: Mapping[str, str]) -> tuple[str, ...]:
    """The file with its overrides."""
    arguments = ["--config", str(request.config)]
    for key, value in overrides.items():
        arguments += ["--set", f"{key}={value}"]
    return tuple(arguments)


def _arguments(request: RunRequest, overrides: Mapping[str, str]) -> tuple[str, ...]:
    arguments = list(_of_file(request, overrides))
    if request.flows:
        arguments += ["--flows", ",".join(request.flows)]
    if request.clusters:
        arguments += ["--clusters", ",".join(request.clusters)]
    if request.strict:
        arguments.append("--strict")
    return tuple(arguments)
