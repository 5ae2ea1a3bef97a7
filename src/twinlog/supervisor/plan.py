"""Plans the children from the command line of `twinlog run`. Finds every error before any child starts."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from twinlog.config import Address, Configuration, Notice, NoticeLevel, Service, load
from twinlog.errors import ConfigError
from twinlog.loops import refuse_loops
from twinlog.service.access.exposure import refuse_open_port
from twinlog.service.options import parse_flows, parse_override
from twinlog.supervisor.addresses import (
    Neighbours,
    ServiceAddress,
    child_overrides,
    reserve_addresses,
)
from twinlog.supervisor.children import Program
from twinlog.supervisor.runs import LivingRun, living_runs
from twinlog.supervisor.supervisor import PROBE


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
