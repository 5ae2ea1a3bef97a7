"""A channel that authenticates to the server and checks its certificate, with files that may change
meanwhile.

gRPC reads a client's certificate once for each channel, so changed files open another channel. Calls in
progress end on the channel where they began.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from twinlog.config import Address
from twinlog.config.security import PeerSecurity, TlsFiles
from twinlog.errors import ConfigError
from twinlog.service.access.gate import AUTHORIZATION
from twinlog.service.access.pem_files import PemFiles, read_ca, read_file
from twinlog.telemetry.tracing import outgoing_metadata

# Interceptors that add the request id and W3C's trace to every call to another service.


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


Options = Sequence[tuple[str, Any]]


class Credentials:
    """A client's certificate, token and trusted CAs. Raises ConfigError when the files are not usable at
    start."""

    def __init__(self, security: PeerSecurity, endpoint: str) -> None:
        self.uses_tls = security.tls
        self.server_name = security.server_name
        self._ca_file = security.ca
        self._files: PemFiles | None = None
        if security.tls and security.certificate and security.key:
            files = TlsFiles(certificate=security.certificate, key=security.key, ca=security.ca)
            self._files = PemFiles(files)
        self._ca = read_ca(security.ca) if security.tls and security.ca else None
        self._token_file = security.token_file
        self._token = ""
        if self._token_file:
            if not (security.tls or security.insecure or Address.parse(endpoint).is_loopback):
                raise token_needs_tls(endpoint)
            self._token = read_token(self._token_file)

    def channel_credentials(self) -> tuple[object, grpc.ChannelCredentials]:
        """The newest valid credentials, and a value that differs for each version of them."""
        if self._files is None:
            with suppress(ConfigError):  # half written: the earlier CAs stay
                self._ca = read_ca(self._ca_file) if self._ca_file else None
            return self._ca, grpc.ssl_channel_credentials(self._ca)
        pem = self._files.current()
        return self._files.generation, grpc.ssl_channel_credentials(pem.ca, pem.key, pem.chain)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Metadata of each call."""
        if not self._token_file:
            return ()
        with suppress(ConfigError):  # half written or gone: the earlier one stays
            self._token = read_token(self._token_file)
        return ((AUTHORIZATION, f"Bearer {self._token}"),)


def read_token(name: str) -> str:
    """The contents of `twinlog.client.token.file`. Raises ConfigError."""
    content = read_file(name, unusable=_unusable).decode(errors="replace").strip()
    if not content or not content.isascii() or not content.isprintable() or " " in content:
        raise _unusable(name, "expected one line with the token")
    return content


def token_needs_tls(endpoint: str) -> ConfigError:
    return ConfigError(
        f"twinlog.client.token.file: a token is not sent to {endpoint} without TLS, where others could read"
        " it: set twinlog.client.tls.ca.file, or twinlog.insecure = true",
        reason="TOKEN_NEEDS_TLS",
        metadata={"key": "twinlog.client.token.file", "endpoint": endpoint},
    )


def _unusable(name: str, why: str) -> ConfigError:
    return ConfigError(f"{Path(name)}: {why}", reason="TOKEN_UNUSABLE", key="twinlog.client.token.file")


@dataclass(slots=True)
class _Open:
    """The channel of one connection, and its calls in progress."""

    channel: grpc.aio.Channel
    mark: object
    calls: int = 0


class SecureChannel(grpc.aio.Channel):
    """Like any channel; `tidy` closes replaced ones."""

    def __init__(self, endpoint: str, credentials: Credentials, options: Options) -> None:
        self._endpoint = endpoint
        self._credentials = credentials
        self._options = list(options)
        if credentials.uses_tls and credentials.server_name:
            self._options.append(("grpc.ssl_target_name_override", credentials.server_name))
        self._now = self._open()
        self._replaced: list[_Open] = []

    async def tidy(self) -> None:
        """Close replaced channels without calls."""
        done = [entry for entry in self._replaced if not entry.calls]
        self._replaced = [entry for entry in self._replaced if entry.calls]
        for entry in done:
            await entry.channel.close()

    async def __aenter__(self) -> "SecureChannel":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        for entry in (*self._replaced, self._now):
            await entry.channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._now.channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._now.channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._now.channel.channel_ready()

    def unary_unary(self, method: str, *arguments: Any, **more: Any) -> Any:
        return self._late("unary_unary", method, arguments, more)

    def unary_stream(self, method: str, *arguments: Any, **more: Any) -> Any:
        return self._late("unary_stream", method, arguments, more)

    def stream_unary(self, method: str, *arguments: Any, **more: Any) -> Any:
        return self._late("stream_unary", method, arguments, more)

    def stream_stream(self, method: str, *arguments: Any, **more: Any) -> Any:
        return self._late("stream_stream", method, arguments, more)

    def _late(self, kind: str, method: str, arguments: tuple[Any, ...], more: dict[str, Any]) -> Any:
        """A call on the channel that is current when the call begins."""
        made: dict[int, tuple[_Open, Callable[..., Any]]] = {}

        def call(*request: Any, metadata: Any = None, **options: Any) -> Any:
            current = self._current()
            if made.get(0, (None,))[0] is not current:
                made[0] = (current, getattr(current.channel, kind)(method, *arguments, **more))
            carried = (*(metadata or ()), *self._credentials.metadata())
            running = made[0][1](*request, metadata=carried or None, **options)
            current.calls += 1

            def ended(_: object) -> None:
                current.calls -= 1

            running.add_done_callback(ended)
            return running

        return call

    def _current(self) -> _Open:
        if self._credentials.uses_tls:
            mark, _ = self._credentials.channel_credentials()
            if mark != self._now.mark:
                self._replaced.append(self._now)
                self._now = self._open()
        return self._now

    def _open(self) -> _Open:
        if not self._credentials.uses_tls:
            return _Open(
                grpc.aio.insecure_channel(
                    self._endpoint, options=self._options, interceptors=outgoing_interceptors()
                ),
                None,
            )
        mark, credentials = self._credentials.channel_credentials()
        return _Open(
            grpc.aio.secure_channel(
                self._endpoint, credentials, options=self._options, interceptors=outgoing_interceptors()
            ),
            mark,
        )
