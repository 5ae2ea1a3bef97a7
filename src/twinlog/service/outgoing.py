"""Interceptors that add the request id and W3C's trace to every call to another service."""

from collections.abc import Callable
from typing import Any

import grpc

from twinlog.telemetry.tracing import outgoing_metadata


class _Carries:
    def _with_context(self, details: grpc.aio.ClientCallDetails) -> grpc.aio.ClientCallDetails:
        metadata = grpc.aio.Metadata(*(details.metadata or ()))
        present = {key for key, _ in metadata}
        for key, value in outgoing_metadata():
            if key not in present:
                metadata.add(key, value)
        return grpc.aio.ClientCallDetails(
            details.method, details.timeout, metadata, details.credentials, details.wait_for_ready
        )


class _UnaryUnary(_Carries, grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        return await continuation(self._with_context(client_call_details), request)


class _UnaryStream(_Carries, grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        return await continuation(self._with_context(client_call_details), request)


def outgoing_interceptors() -> list[grpc.aio.ClientInterceptor]:
    """Interceptors for a new channel. Streams of requests (tasks to their driver) are not an operator's
    requests and get none."""
    return [_UnaryUnary(), _UnaryStream()]
