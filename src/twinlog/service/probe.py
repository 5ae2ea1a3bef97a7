"""Ask services whether they serve, by gRPC health: for container health checks and for `twinlog run`.

    python -m twinlog.service.probe HOST:PORT…          once: exit 0 when all serve, 1 when not
    python -m twinlog.service.probe --wait HOST:PORT…   until all serve at the same time, then exit 0

`--service liveness` asks whether the process is alive instead of whether it can serve. Where the services
speak TLS, `--config` (or the variable TWINLOG_CONFIG) says how to; `NAME=HOST:PORT` names the service,
which is found by its port otherwise.
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

from twinlog.config import Address, Service, load
from twinlog.config.security import ClientSecurity
from twinlog.errors import ConfigError
from twinlog.service.arguments import parse_override
from twinlog.service.peers import open_channel
from twinlog.service.waiting import wait_or_stop

_TIMEOUT_SECONDS = 2.0
_INTERVAL_SECONDS = 0.3


async def problem_of(endpoint: str, service: str, channel: grpc.aio.Channel) -> str | None:
    """Why `endpoint` does not serve, None when it does. Bounded by two seconds."""
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
    security: Mapping[str, ClientSecurity] | None = None,
) -> list[str]:
    """The problems of the last round; with `wait` rounds go on until there is none. `security`: how to call
    an endpoint, where not in plain text."""
    how = security or {}
    channels = {endpoint: open_channel(endpoint, how.get(endpoint)) for endpoint in endpoints}
    never = asyncio.Event()
    try:
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


def _security(
    config: str | Path | None, overrides: Sequence[str], named: Sequence[tuple[str, str]]
) -> dict[str, ClientSecurity]:
    """How to call each endpoint: as its service would call itself. Raises ConfigError."""
    if config is None:
        return {}
    configuration = load(
        Path(config), environ=os.environ, overrides=dict(parse_override(text) for text in overrides)
    )
    by_port = {
        address.port: str(service)
        for service, entry in configuration.endpoints.items()
        for address in (entry.endpoint, entry.listen)
    }
    found: dict[str, ClientSecurity] = {}
    for name, endpoint in named:
        service = name or by_port.get(Address.parse(endpoint).port, "")
        if service not in tuple(Service):
            continue
        how = configuration.security.to_call(Service(service), own=Service(service))
        # A container asks itself by 127.0.0.1, which is not what its certificate is for.
        host = configuration.endpoints[Service(service)].endpoint.host
        found[endpoint] = replace(how, server_name=how.server_name or host)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m twinlog.service.probe", description=__doc__)
    parser.add_argument("endpoints", nargs="+", metavar="HOST:PORT")
    parser.add_argument(
        "--service", default="readiness", help="readiness (default), liveness, or a full name"
    )
    parser.add_argument("--wait", action="store_true", help="ask until all serve")
    parser.add_argument("--config", type=Path, metavar="FILE", default=os.environ.get("TWINLOG_CONFIG"))
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    options = parser.parse_args(argv)
    named = [endpoint.rpartition("=")[::2] for endpoint in options.endpoints]
    try:
        security = _security(options.config, options.overrides, named)
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
