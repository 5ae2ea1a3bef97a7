"""Channels to the other services: one per peer for the process, with one retry policy; calls to owners."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

import grpc

from twinlog.config import Address
from twinlog.config.security import PeerSecurity
from twinlog.errors import NotFoundError, TwinlogError
from twinlog.service.access.client import Credentials, SecureChannel, outgoing_interceptors, token_needs_tls
from twinlog.service.errors_wire import error_from_rpc
from twinlog.service.limits import MAX_MESSAGE_BYTES
from twinlog.service.owner.name import OWNER_ADDRESS, OwnerReason
from twinlog.service.rpc import GRPC, Rpc
from twinlog.service.waiting import wait_or_stop

# Calls that reach a flow's owner: when a process on standby refuses one and names the owner, the call is
# repeated there (docs/adr/0013).
#
# Invariant: a call is repeated once, before the caller saw any of its answer, only at the address in the
# refusal, and with the same credentials and checks.

OpenChannel = Callable[[str], grpc.aio.Channel]
"""Opens a channel to HOST:PORT, like the first one. Raises ConfigError when that address must not be
called."""

_UNREACHED: Final = frozenset({"PEER_UNAVAILABLE", "PEER_TIMEOUT", "TLS_FAILED"})
"""The owner cannot be called from here; the standby's refusal is more helpful."""


def owner_of(failure: grpc.aio.AioRpcError, asked: str) -> str | None:
    """HOST:PORT of the owner in a refusal by the process at `asked`; None when the call must not be
    repeated."""
    error = error_from_rpc(failure)
    address = error.metadata.get(OWNER_ADDRESS, "")
    if error.reason != OwnerReason.OWNED_ELSEWHERE or not address or address == asked:
        return None
    try:
        owner, here = Address.parse(address), Address.parse(asked)
    except ValueError:
        return None
    # Another machine's loopback is ours only if the first process was called on loopback, too.
    return None if owner.is_loopback and not here.is_loopback else address


def _reaches_nobody(failure: grpc.aio.AioRpcError) -> bool:
    return error_from_rpc(failure).reason in _UNREACHED


class OwnerChannel(grpc.aio.Channel):
    """Wraps a channel. Calls with a stream of requests are not repeated."""

    def __init__(self, channel: grpc.aio.Channel, endpoint: str, open_channel: OpenChannel) -> None:
        self._channel = channel
        self._endpoint = endpoint
        self._open_channel = open_channel

    async def tidy(self) -> None:
        """Close connections whose certificates were replaced."""
        if hasattr(self._channel, "tidy"):
            await self._channel.tidy()

    async def __aenter__(self) -> "OwnerChannel":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._channel.channel_ready()

    def stream_unary(self, *arguments: Any, **more: Any) -> Any:
        return self._channel.stream_unary(*arguments, **more)

    def stream_stream(self, *arguments: Any, **more: Any) -> Any:
        return self._channel.stream_stream(*arguments, **more)

    def unary_unary(self, *arguments: Any, **more: Any) -> Any:
        first = self._channel.unary_unary(*arguments, **more)

        def call(request: Any, *, timeout: float | None = None, **options: Any) -> "_UnaryCall":
            again = _Again(self, "unary_unary", arguments, more, request, timeout, options)
            return _UnaryCall(first(request, timeout=timeout, **options), again)

        return call

    def unary_stream(self, *arguments: Any, **more: Any) -> Any:
        first = self._channel.unary_stream(*arguments, **more)

        def call(request: Any, *, timeout: float | None = None, **options: Any) -> "_StreamCall":
            again = _Again(self, "unary_stream", arguments, more, request, timeout, options)
            return _StreamCall(first(request, timeout=timeout, **options), again)

        return call

    def to_owner(self, refusal: grpc.aio.AioRpcError) -> grpc.aio.Channel | None:
        """A channel to the owner that a refusal names; None when the call must not be repeated."""
        address = owner_of(refusal, self._endpoint)
        if address is None:
            return None
        try:
            return self._open_channel(address)
        except TwinlogError:  # such as a token that must not be sent without TLS
            return None


class _Again:
    """A call that may be repeated."""

    def __init__(
        self,
        channel: OwnerChannel,
        kind: str,
        arguments: tuple[Any, ...],
        more: dict[str, Any],
        request: Any,
        timeout: float | None,
        options: dict[str, Any],
    ) -> None:
        self._channel, self._kind, self._arguments, self._more = channel, kind, arguments, more
        self._request, self._options = request, options
        self._ends_at = None if timeout is None else asyncio.get_running_loop().time() + timeout

    def channel(self, refusal: grpc.aio.AioRpcError) -> grpc.aio.Channel | None:
        return self._channel.to_owner(refusal)

    def call(self, channel: grpc.aio.Channel) -> Any:
        """Call within the remaining time of the first call."""
        left = None if self._ends_at is None else max(0.0, self._ends_at - asyncio.get_running_loop().time())
        made = getattr(channel, self._kind)(*self._arguments, **self._more)
        return made(self._request, timeout=left, **self._options)


class _UnaryCall:
    """An answer to await; everything else is the first call's."""

    def __init__(self, first: Any, again: _Again) -> None:
        self._first, self._again = first, again

    def __getattr__(self, name: str) -> Any:
        return getattr(self._first, name)

    def __await__(self) -> Any:
        return self._answer().__await__()

    async def _answer(self) -> Any:
        try:
            return await self._first
        except grpc.aio.AioRpcError as refusal:
            channel = self._again.channel(refusal)
            if channel is None:
                raise
            async with channel:
                try:
                    return await self._again.call(channel)
                except grpc.aio.AioRpcError as failure:
                    if _reaches_nobody(failure):
                        raise refusal from failure
                    raise


class _StreamCall:
    """Answers to iterate over, once; everything else is the first call's."""

    def __init__(self, first: Any, again: _Again) -> None:
        self._first, self._again = first, again
        self._running = first

    def __getattr__(self, name: str) -> Any:
        return getattr(self._running, name)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._answers()

    async def _answers(self) -> AsyncIterator[Any]:
        told = False
        try:
            async for answer in self._first:
                told = True
                yield answer
            return
        except grpc.aio.AioRpcError as refused:
            refusal = refused
            channel = None if told else self._again.channel(refused)
            if channel is None:
                raise
        async with channel:
            self._running = self._again.call(channel)
            try:
                async for answer in self._running:
                    told = True
                    yield answer
            except grpc.aio.AioRpcError as failure:
                if not told and _reaches_nobody(failure):
                    raise refusal from failure
                raise


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


def open_channel(endpoint: str, security: PeerSecurity | None = None) -> grpc.aio.Channel:
    """A channel to HOST:PORT, which connects on first use; close it. Raises ConfigError when files of
    `security` are not usable."""
    return open_with(endpoint, credentials_for(endpoint, security))


def credentials_for(endpoint: str, security: PeerSecurity | None) -> Credentials | None:
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
    returns the credentials for an address. Raises its errors for `endpoint`."""

    def open_owner(address: str) -> grpc.aio.Channel:
        return _open_member(address, shown(address), rpc)

    return OwnerChannel(open_with(endpoint, shown(endpoint), rpc), endpoint, open_owner)


def _open_member(address: str, credentials: Credentials | None, rpc: Rpc) -> grpc.aio.Channel:
    """Without TLS a token goes to configured endpoints only: an owner's address comes from the lease's group
    on the target, where others may be members. Raises ConfigError (TOKEN_NEEDS_TLS)."""
    if credentials is not None and not credentials.uses_tls:
        raise token_needs_tls(address)
    return open_with(address, credentials, rpc)


@dataclass(slots=True, eq=False, repr=False)
class Peers:
    """Channels by service name: opened on first use, reconnected after a loss."""

    endpoints: Mapping[str, str]
    """Service name → HOST:PORT."""
    stack: AsyncExitStack
    """Closes the channels."""
    _: KW_ONLY
    security: Callable[[str], PeerSecurity] = lambda _: PeerSecurity()
    """TLS and credentials for calls."""
    rpc: Rpc = GRPC
    """Opens channels without TLS."""
    _channels: dict[str, OwnerChannel] = field(default_factory=dict)

    def endpoint(self, name: str) -> str:
        """HOST:PORT of a service. Raises NotFoundError for an unknown name."""
        try:
            return self.endpoints[name]
        except KeyError:
            raise NotFoundError(f"no service is called {name!r}", metadata={"service": name}) from None

    def channel(self, name: str) -> grpc.aio.Channel:
        """The process's one channel to a service ("configsync"). Raises NotFoundError for an unknown name."""
        if name not in self._channels:
            security = self.security(name)
            channel = open_to_owner(self.endpoint(name), lambda at: credentials_for(at, security), self.rpc)
            self._channels[name] = channel
            self.stack.push_async_callback(channel.close)
        return self._channels[name]

    def open_process(self, name: str, address: str) -> grpc.aio.Channel:
        """A channel to the owner of a flow at HOST:PORT; close it. Raises ConfigError."""
        return _open_member(address, credentials_for(address, self.security(name)), self.rpc)

    async def tidy(self, stop: asyncio.Event) -> None:
        """Loop: close connections whose certificates were replaced."""
        while not await wait_or_stop(stop, _TIDY_SECONDS):
            for channel in list(self._channels.values()):
                await channel.tidy()
