"""Channels to the other services: one per peer for the process, with one retry policy."""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import grpc

from twinlog.config.security import ClientSecurity
from twinlog.errors import NotFoundError
from twinlog.service.access.client import Credentials, SecureChannel, outgoing_interceptors, token_needs_tls
from twinlog.service.limits import MAX_MESSAGE_BYTES
from twinlog.service.owner.calls import OwnerChannel
from twinlog.service.rpc import GRPC, Rpc
from twinlog.service.waiting import wait_or_stop

CALL_TIMEOUT_SECONDS = 5.0
"""The `timeout=` of a unary call between services; every call needs one."""

_TIDY_SECONDS = 30.0

_SERVICE_CONFIG = json.dumps(
    {
        "methodConfig": [
            {
                "name": [{}],
                "retryPolicy": {
                    "maxAttempts": 4,
                    "initialBackoff": "0.1s",
                    "maxBackoff": "1s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": ["UNAVAILABLE"],
                },
            }
        ],
        "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1},
    }
)

_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.service_config", _SERVICE_CONFIG),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # A restarted peer is back within seconds: gRPC's default of up to two minutes is too long.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    # Loopback and cluster addresses: a proxy of the environment is meant for the outside world.
    ("grpc.enable_http_proxy", 0),
)


def open_channel(endpoint: str, security: ClientSecurity | None = None) -> grpc.aio.Channel:
    """A channel to HOST:PORT, which connects on first use; close it. Raises ConfigError when files of
    `security` are not usable."""
    return open_with(endpoint, credentials_for(endpoint, security))


def credentials_for(endpoint: str, security: ClientSecurity | None) -> Credentials | None:
    """Credentials that successive channels to HOST:PORT may share; None without any. Raises as
    `open_channel`."""
    if security is None or not (security.tls or security.token_file):
        return None
    return Credentials(security, endpoint)


def open_with(endpoint: str, credentials: Credentials | None, rpc: Rpc = GRPC) -> grpc.aio.Channel:
    """Like `open_channel`, with credentials that were read before. Raises nothing."""
    if credentials is None:
        opened: grpc.aio.Channel = rpc.insecure_channel(
            endpoint, options=_OPTIONS, interceptors=outgoing_interceptors()
        )
        return opened
    return SecureChannel(endpoint, credentials, _OPTIONS)


def open_to_owner(endpoint: str, shown: Callable[[str], Credentials | None], rpc: Rpc = GRPC) -> OwnerChannel:
    """A channel to HOST:PORT whose calls reach the owner when a process on standby refuses them. `shown`
    returns the credentials for an address. Raises its errors for `endpoint`.

    Without TLS a token goes to `endpoint` only: the owner's address comes from the lease's group on the
    target, where others may be members."""

    def open_owner(address: str) -> grpc.aio.Channel:
        credentials = shown(address)
        if credentials is not None and not credentials.uses_tls:
            raise token_needs_tls(address)
        return open_with(address, credentials, rpc)

    return OwnerChannel(open_with(endpoint, shown(endpoint), rpc), endpoint, open_owner)


class Peers:
    """Channels by service name: opened on first use, reconnected after a loss."""

    def __init__(
        self,
        endpoints: Mapping[str, str],
        stack: AsyncExitStack,
        *,
        security: Callable[[str], ClientSecurity] = lambda _: ClientSecurity(),
        rpc: Rpc = GRPC,
    ) -> None:
        """`endpoints`: service name → HOST:PORT. `stack` closes the channels. `security`: TLS and credentials
        for calls. `rpc`: opens channels without TLS."""
        self._rpc = rpc
        self._endpoints = dict(endpoints)
        self._security = security
        self._stack = stack
        self._channels: dict[str, OwnerChannel] = {}

    def endpoint(self, name: str) -> str:
        """HOST:PORT of a service. Raises NotFoundError for an unknown name."""
        try:
            return self._endpoints[name]
        except KeyError:
            raise NotFoundError(f"no service is called {name!r}", metadata={"service": name}) from None

    def channel(self, name: str) -> grpc.aio.Channel:
        """The process's one channel to a service ("configsync"). Raises NotFoundError for an unknown name."""
        if name not in self._channels:
            security = self._security(name)
            channel = open_to_owner(self.endpoint(name), lambda at: credentials_for(at, security), self._rpc)
            self._channels[name] = channel
            self._stack.push_async_callback(channel.close)
        return self._channels[name]

    async def tidy(self, stop: asyncio.Event) -> None:
        """Loop: close connections whose certificates were replaced."""
        while not await wait_or_stop(stop, _TIDY_SECONDS):
            for channel in list(self._channels.values()):
                await channel.tidy()
