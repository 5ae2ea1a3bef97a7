"""A service of an earlier release has no health `readiness`, which is not an error: its status is shown."""

import grpc
import pytest
from grpc_health.v1 import health_pb2

from twinlog.cli.common.call import called
from twinlog.errors import NotFoundError


class Earlier:
    """gRPC's own servicer tells what it does not have by the code alone."""

    async def Check(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, *, timeout: float = 0.0
    ) -> health_pb2.HealthCheckResponse:
        nothing = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(grpc.StatusCode.NOT_FOUND, nothing, nothing)


async def test_what_grpc_itself_does_not_find_is_told_as_not_found() -> None:
    with pytest.raises(NotFoundError):
        await called(Earlier(), "source").Check(health_pb2.HealthCheckRequest(service="readiness"))
