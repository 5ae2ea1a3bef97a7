"""Ask services whether they serve, by gRPC health: for container health checks and for `twinlog run`.

    python -m twinlog.service.probe HOST:PORT…          once: exit 0 when all serve, 1 when not
    python -m twinlog.service.probe --wait HOST:PORT…   until all serve at the same time, then exit 0

`--service liveness` asks whether the process is alive instead of whether it can serve.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

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


async def probe(endpoints: Sequence[str], *, service: str, wait: bool) -> list[str]:
    """The problems of the last round; with `wait` rounds go on until there is none."""
    channels = {endpoint: open_channel(endpoint) for endpoint in endpoints}
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


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m twinlog.service.probe", description=__doc__)
    parser.add_argument("endpoints", nargs="+", metavar="HOST:PORT")
    parser.add_argument(
        "--service", default="readiness", help="readiness (default), liveness, or a full name"
    )
    parser.add_argument("--wait", action="store_true", help="ask until all serve")
    options = parser.parse_args(argv)
    problems = asyncio.run(probe(options.endpoints, service=options.service, wait=options.wait))
    for problem in problems:
        sys.stderr.write(problem + "\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
