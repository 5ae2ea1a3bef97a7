"""Calls services' gRPC health, for container health checks and for `twinlog run`.

    python -m twinlog.service.probe HOST:PORT…          once: exit 0 when all serve, 1 otherwise
    python -m twinlog.service.probe --wait HOST:PORT…   until all serve at the same time, then exit 0

`--service liveness` asks whether the process is alive instead of whether it answers, `--service readiness`
whether it works at its flows: see `GrpcServer`. For services with TLS, `--config` (or the variable
TWINLOG_CONFIG) gives the credentials; `NAME=HOST:PORT` names the service, which is otherwise found by its
address or port. A file that cannot be read does not make a service unhealthy: a message says so, and the
call uses plain text.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from twinlog.config import Address, Configuration, Service, load
from twinlog.config.security import PeerSecurity
from twinlog.errors import ConfigError
from twinlog.service.options import parse_override
from twinlog.service.peers import open_channel
from twinlog.service.waiting import wait_or_stop

_TIMEOUT_SECONDS = 2.0
_INTERVAL_SECONDS = 0.3
_ROTATION_SECONDS = 0.5
"""Time before unusable files are read again: they may be in the middle of a replacement."""


async def problem_of(endpoint: str, service: str, channel: grpc.aio.Channel) -> str | None:
    """Why `endpoint` does not serve, None when it does. Takes two seconds at most."""
    stub = health_pb2_grpc.HealthStub(channel)
    try:
        answer = await stub.Check(
            health_pb2.HealthCheckRequest(service=service), timeout=_TIMEOUT_SECONDS, wait_for_ready=True
        )
    except grpc.aio.AioRpcError as error:
        return f"{endpoint}: {error.code().name}"
    if answer.status == health_pb2.HealthCheckResponse.SERVING:
        return None
    return f"{endpoint}: {health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)}"


async def probe(
    endpoints: Sequence[str],
    *,
    service: str,
    wait: bool,
    security: Mapping[str, PeerSecurity] | None = None,
) -> list[str]:
    """The problems of the last round; with `wait`, rounds repeat until there is none. `security`: how to call
    an endpoint without plain text. Raises ConfigError for unusable files."""
    how = security or {}
    channels: dict[str, grpc.aio.Channel] = {}
    never = asyncio.Event()
    try:
        for endpoint in endpoints:
            channels[endpoint] = await _opened(endpoint, how.get(endpoint))
        while True:
            async with asyncio.TaskGroup() as group:
                checks = [
                    group.create_task(problem_of(endpoint, service, channel), name=endpoint)
                    for endpoint, channel in channels.items()
                ]
            problems = [problem for check in checks if (problem := check.result()) is not None]
            if not problems or not wait:
                return problems
            await wait_or_stop(never, _INTERVAL_SECONDS)
    finally:
        for channel in channels.values():
            await channel.close()


async def _opened(endpoint: str, security: PeerSecurity | None) -> grpc.aio.Channel:
    try:
        return open_channel(endpoint, security)
    except ConfigError:
        await wait_or_stop(asyncio.Event(), _ROTATION_SECONDS)
        return open_channel(endpoint, security)


def _service_at(address: Address, configuration: Configuration) -> str:
    """The service at this address, else the one with this port; empty for none or several."""
    of = {str(service): (entry.endpoint, entry.listen) for service, entry in configuration.endpoints.items()}
    exact = [service for service, known in of.items() if address in known]
    by_port = [service for service, known in of.items() if address.port in (each.port for each in known)]
    found = exact or by_port
    return found[0] if len(found) == 1 else ""


def _security(
    config: str | Path | None, overrides: Sequence[str], named: Sequence[tuple[str, str]]
) -> dict[str, PeerSecurity]:
    """Credentials for each endpoint, as the service itself would use. Raises ConfigError."""
    if config is None:
        return {}
    configuration = load(
        Path(config), environ=os.environ, overrides=dict(parse_override(text) for text in overrides)
    )
    found: dict[str, PeerSecurity] = {}
    for name, endpoint in named:
        service = name or _service_at(Address.parse(endpoint), configuration)
        if service not in tuple(Service):
            continue
        how = configuration.security.to_call(Service(service), own=Service(service))
        # A container calls itself at 127.0.0.1, and its certificate has another name.
        host = configuration.endpoints[Service(service)].endpoint.host
        found[endpoint] = replace(how, server_name=how.server_name or host)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m twinlog.service.probe", description=__doc__)
    parser.add_argument("endpoints", nargs="+", metavar="HOST:PORT")
    parser.add_argument(
        "--service", default="", help="empty (default: it answers), readiness, liveness, or a full name"
    )
    parser.add_argument("--wait", action="store_true", help="ask until all serve")
    parser.add_argument("--config", type=Path, metavar="FILE", default=os.environ.get("TWINLOG_CONFIG"))
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    options = parser.parse_args(argv)
    named = [endpoint.rpartition("=")[::2] for endpoint in options.endpoints]
    security: dict[str, PeerSecurity] = {}
    try:
        security = _security(options.config, options.overrides, named)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        if options.wait:
            return 1
        # A running service must not count as dead because its file was edited.
    try:
        problems = asyncio.run(
            probe(
                [endpoint for _, endpoint in named],
                service=options.service,
                wait=options.wait,
                security=security,
            )
        )
    except ConfigError as error:
        problems = [str(error)]
    for problem in problems:
        sys.stderr.write(problem + "\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
