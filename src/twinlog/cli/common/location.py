"""How the command line finds the configuration and the services."""

import os
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinlog.cli.common.failures import COMMAND
from twinlog.cli.common.options import argument, option
from twinlog.cli.common.pasteable import FILE_IS_IN_ENVIRONMENT, GIVEN_ENDPOINTS, GIVEN_FILE
from twinlog.config.security import PeerSecurity
from twinlog.errors import ConfigError

# Environment variables for calling services; they override the file.

VARIABLES = {
    "ca": "TWINLOG_CA_FILE",
    "certificate": "TWINLOG_CERTIFICATE_FILE",
    "key": "TWINLOG_KEY_FILE",
    "token_file": "TWINLOG_TOKEN_FILE",
    "server_name": "TWINLOG_SERVER_NAME",
}


def of_environment(security: PeerSecurity, environment: Mapping[str, str]) -> PeerSecurity:
    """`security` with what the environment names.

    >>> of_environment(PeerSecurity(), {"TWINLOG_CA_FILE": "ca.pem"}).tls
    True
    """
    found: dict[str, Any] = {
        name: environment[each] for name, each in VARIABLES.items() if environment.get(each)
    }
    return replace(security, tls=security.tls or "ca" in found, **found)


if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc

    from twinlog.config import Configuration
    from twinlog.service.access.client import Credentials
    from twinlog.supervisor.runs import LivingRun

CONFIG_VARIABLE = "TWINLOG_CONFIG"
IN_PLACE_OF_SERVICES: ContextVar["Callable[[str, str], grpc.aio.Channel] | None"] = ContextVar(
    "IN_PLACE_OF_SERVICES", default=None
)
"""Opens channels to services by name and HOST:PORT, for tests; None: as the configuration says."""
SERVICES = ("source", "checkpoint", "heartbeat", "configsync")


def note_file(context: typer.Context, config: Path | None) -> Path | None:
    """Store the file, so that the command that a failure suggests includes it."""
    words: list[str] = []
    at: Any = context
    while at.parent is not None:
        words.insert(0, at.info_name or "")
        at = at.parent
    COMMAND.set(" ".join(["twinlog", *words]))
    GIVEN_FILE.set("" if config is None else str(config))
    FILE_IS_IN_ENVIRONMENT.set(config is not None and os.environ.get(CONFIG_VARIABLE) == str(config))
    return config


def note_endpoints(endpoints: list[str] | None) -> list[str] | None:
    """Store the endpoints, so that a suggested command asks the same services."""
    GIVEN_ENDPOINTS.set(tuple(endpoints or ()))
    return endpoints


ConfigOption = Annotated[
    Path | None,
    option(
        "--config FILE",
        "The properties file that the services run with.",
        callback=note_file,
        envvar=CONFIG_VARIABLE,
    ),
]
EndpointOption = Annotated[
    list[str] | None,
    option(
        "--endpoint SERVICE=HOST:PORT",
        "Address of a service, instead of the one in the file. May be repeated.",
        callback=note_endpoints,
    ),
]


FileArgument = Annotated[
    Path,
    argument("FILE", "A MirrorMaker 2 properties file.", callback=note_file, envvar=CONFIG_VARIABLE),
]


def required_config(config: Path | None) -> Path:
    """Raises ConfigError when none is named."""
    if config is None:
        raise ConfigError("name the properties file with --config", key="--config")
    return config


def load_config(path: Path, *, strict: bool = False) -> "Configuration":
    """Read a properties file as the services do; with `strict` an unknown key is an error. Raises
    ConfigError."""
    from twinlog.config import load

    return load(path, environ=os.environ, strict=strict)


def service_endpoints(config: Path | None, endpoints: list[str] | None) -> dict[str, str]:
    """HOST:PORT of every service: from --endpoint, else from the running services of the file, else from the
    file, else the default port on loopback.

    Raises ConfigError for an unknown service, for a file that does not load, and where another deployment's
    `twinlog run` listens at an address that the file has only by default.
    """
    from twinlog.config.keys.spec import Service
    from twinlog.config.keys.table import default_port
    from twinlog.supervisor.runs import living_runs

    named = dict(_parse_endpoint(text) for text in endpoints or ())
    found = {str(service): f"127.0.0.1:{default_port(service)}" for service in Service}
    if config is not None:
        configuration = load_config(config)
        found |= {str(service): str(entry.endpoint) for service, entry in configuration.endpoints.items()}
        runs = living_runs()
        own = [run for run in runs if run.is_of(config)]
        for run in own:
            found |= run.endpoints
        found |= named
        for run in () if own else runs:
            if any(found[service] == at for service, at in run.endpoints.items() if service not in named):
                _refuse_another(configuration, config, run)
    return found | named


def _refuse_another(configuration: "Configuration", config: Path, run: "LivingRun") -> None:
    """A copy of the file that the run has is as good as that one."""
    try:
        runs_with = load_config(Path(run.config))
    except ConfigError:
        return
    theirs = {alias: client.bootstrap_servers for alias, client in runs_with.clusters.items()}
    if all(theirs.get(alias) == each.bootstrap_servers for alias, each in configuration.clusters.items()):
        return
    raise ConfigError(
        f"{config} does not run here: at its addresses `twinlog run {run.config}` listens, for other"
        f" clusters. Start it, name that file, or name its services (--endpoint)",
        key="--config",
    )


def service_channel(config: Path | None, endpoints: list[str] | None, service: str) -> "grpc.aio.Channel":
    """A channel to a service, with the credentials of the file and the environment. Raises ConfigError."""
    return channels(config)(service, service_endpoints(config, endpoints)[service])


def channels(config: Path | None) -> "Callable[[str, str], grpc.aio.Channel]":
    """Return a function that opens a channel to a service by name and HOST:PORT. Calls that a standby refuses
    are repeated at the flow's owner. Raises ConfigError for a file that does not load; the first call for a
    service also for unusable certificates and tokens. Later calls use the newest usable ones, so that
    half-written files do not end a live view."""
    if (answering := IN_PLACE_OF_SERVICES.get()) is not None:
        return answering
    from twinlog.config import Service
    from twinlog.config.security import SecuritySettings
    from twinlog.service.peers import credentials_for, open_to_owner

    security = SecuritySettings() if config is None else load_config(config).security

    known: dict[tuple[str, str], Credentials | None] = {}

    def shown(service: str, endpoint: str) -> "Credentials | None":
        place = service, endpoint
        if place not in known:
            how = of_environment(security.to_call(Service(service)), os.environ)
            known[place] = credentials_for(endpoint, how)
        return known[place]

    def opened(service: str, endpoint: str) -> "grpc.aio.Channel":
        return open_to_owner(endpoint, lambda address: shown(service, address))

    return opened


def _parse_endpoint(text: str) -> tuple[str, str]:
    service, sign, endpoint = text.partition("=")
    if service not in SERVICES or not sign or ":" not in endpoint:
        raise ConfigError(
            f"--endpoint {text!r}: expected SERVICE=HOST:PORT with one of {', '.join(SERVICES)}",
            key="--endpoint",
        )
    return service, endpoint
