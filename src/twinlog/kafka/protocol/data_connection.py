"""aiokafka's connection with another way for the bytes: sent in pieces, received into the frame.

Bootstrap, versions, TLS and SASL mechanisms are aiokafka's. The handling of bytes is replaced: the library
joins a request three times and copies a response three times, which takes a fifth of the CPU of a raw copy. A
session with a limited lifetime is renewed on the connection before it ends (KIP-368): running requests are
answered first, and new ones wait meanwhile.
"""

import asyncio
import socket
import struct
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

import aiokafka.errors as aiokafka_errors
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import CorrelationIdError, KafkaConnectionError, KafkaError, RequestTimedOutError
from aiokafka.protocol.admin import SaslAuthenticateRequest, SaslHandShakeRequest

from twinlog.kafka.deadline import pause
from twinlog.kafka.protocol.frames import LARGEST_FRAME_BYTES, Frame, FrameProtocol
from twinlog.kafka.protocol.reach import LONGEST_THROTTLE_SECONDS, Patience
from twinlog.kafka.protocol.requests import AgreedRequest, HandWrittenRequest
from twinlog.kafka.security.access import ClusterAccess, SaslLogin
from twinlog.kafka.security.jaas import KerberosAuthenticator, KerberosLogin
from twinlog.kafka.security.oauth.reading import TokenError

# SASL with Kafka's own requests, also again on a connection in use (KIP-368).
#
# Unlike aiokafka's, it reads how long the broker lets the session live, and answers a broker that refuses a
# token, so that the reason of the refusal arrives.

Send = Callable[[Any], Awaitable[Any]]

REAUTHENTICATE_AT = 0.85
"""A client logs in again after this share of the session's life; Java does so after 85 to 95 %."""
MIN_SESSION_SECONDS = 1.1
"""Brokers accept no second login within a second."""
_DUMMY = b"\x01"
"""The client's answer to the details of a refusal (RFC 7628)."""


class Authenticator(Protocol):
    """The client's side of a SASL mechanism. Implemented by aiokafka's classes."""

    def step(self, payload: bytes | None) -> Awaitable[tuple[bytes, bool] | None]: ...


async def log_in(send: Send, mechanism: str, authenticator: Authenticator) -> float:
    """Authenticate; return how many seconds the session lives, 0 = without limit. Raises aiokafka's
    errors."""
    handshake = await send(SaslHandShakeRequest(mechanism))
    _raise_for(handshake.error_code, f"the broker offers {', '.join(handshake.enabled_mechanisms)}")
    lifetime_ms, challenge = 0, None
    while True:
        move = await authenticator.step(challenge)
        if move is None:
            return lifetime_ms / 1000
        answer = await send(SaslAuthenticateRequest(move[0]))
        _raise_for(answer.error_code, answer.error_message or "")
        lifetime_ms = getattr(answer, "session_lifetime_ms", 0)
        challenge = answer.sasl_auth_bytes
        if mechanism == "OAUTHBEARER" and challenge:
            refusal = await send(SaslAuthenticateRequest(_DUMMY))
            _raise_for(refusal.error_code, refusal.error_message or "")
            raise aiokafka_errors.SaslAuthenticationFailed("the broker refused the token")


def _raise_for(code: int, message: str) -> None:
    if code:
        raise aiokafka_errors.for_code(code)(message)


_INT32 = struct.Struct(">i")
_JOIN_BELOW_BYTES = 64 << 10
"""Below this size one write costs less than several."""
_QUIET_SECONDS = 1.0
"""A broker that was silent for longer may have been fenced: its controller fences it after
broker.session.timeout.ms (9 s) without a heartbeat, and it answers on the same connection afterwards."""
_LATER_SECONDS = 1.0
"""After the library's own time-out, whose error is more precise."""
_KEEP_ALIVE_SECONDS = 60
"""Below the time after which NAT gateways and load balancers forget a silent connection (4 to 6 minutes); the
operating system's own is two hours."""

T = TypeVar("T")


class DataConnection(AIOKafkaConnection):  # type: ignore[misc]  # aiokafka has no types
    """One connection to one broker: create it, then `connect` it."""

    _writer: asyncio.StreamWriter | None

    def __init__(self, host: str, port: int, *, address: str, client_id: str, **options: Any) -> None:
        """`address`: of the host, which is the name in certificates and tickets."""
        super().__init__(host, port, client_id=client_id, **options)
        self._address = address
        self._client_id_bytes = client_id.encode()
        self._frames: FrameProtocol | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._muted: asyncio.TimerHandle | None = None
        """Ends a connection from which the broker reads nothing for longer than is waited."""
        self._patience = Patience(self._request_timeout)
        self._written_bytes = 0
        self._heard_at: float = self._loop.time()
        self.contact = 0
        """Another number after each pause of more than a second without an answer of the broker."""
        self._renewal_timer: asyncio.TimerHandle | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._held: deque[tuple[HandWrittenRequest[Any], asyncio.Future[Any]]] | None = None
        """Requests that wait for the end of a renewal; None = there is no renewal."""
        self._released = asyncio.Event()
        self._drained = asyncio.Event()

    async def connect(self) -> None:
        """Connect, negotiate versions, authenticate. Raises aiokafka's errors, OSError or TimeoutError."""
        self._closed_fut = self._loop.create_future()
        self._frames = FrameProtocol(self._take_frame, self._connection_lost, self._largest_frame)
        frames = self._frames
        async with asyncio.timeout(self._request_timeout):
            await self._take_credentials()
            tls = self._security_protocol in ("SSL", "SASL_SSL")
            transport, _ = await self._loop.create_connection(
                lambda: frames,
                self._address,
                self.port,
                ssl=self._ssl_context if tls else None,
                server_hostname=self.host if tls else None,
            )
        _keep_alive(transport.get_extra_info("socket"))
        self._writer = asyncio.StreamWriter(transport, frames, None, self._loop)
        self._reader = frames  # The library asks this task whether the connection has ended.
        self._read_task = (
            self._loop.create_future()
        )  # The library cancels this task at the end; frames arrive without it.
        if self._max_idle_ms is not None:
            self._idle_handle = self._loop.call_soon(self._idle_check, weakref.ref(self))
        try:
            await self._do_version_lookup()
            if self._security_protocol in ("SASL_SSL", "SASL_PLAINTEXT"):
                await self._do_sasl_handshake()
        except BaseException:
            self.close()
            raise

    def send(self, request: Any, expect_response: bool = True) -> Coroutine[None, None, Any]:
        """Write a request; await the result for its response. Raises KafkaConnectionError.

        It is written at once, except for a request of aiokafka's on a throttled connection, because the
        library would count the throttle as part of its time-out.
        """
        if isinstance(request, HandWrittenRequest):
            return _result_of(self.post(request))
        if self.throttled_seconds > 0 or self._held is not None:
            return self._send_later(request, expect_response)
        return self._send_now(request, expect_response)

    def _send_now(self, request: Any, expect_response: bool) -> Coroutine[None, None, Any]:
        answer: Coroutine[None, None, Any] = super().send(request, expect_response)
        if expect_response:
            # The library's own time-out ends with its caller, which may have gone on to another broker.
            self._loop.call_later(
                self._request_timeout + _LATER_SECONDS, self._end_if_unanswered, self._requests[-1]
            )
        return answer

    def _end_if_unanswered(self, entry: tuple[Any, Any, Any]) -> None:
        if entry in self._requests:
            self.close(reason=CloseReason.CONNECTION_TIMEOUT)

    async def _send_later(self, request: Any, expect_response: bool) -> Any:
        while self.throttled_seconds > 0 or self._held is not None:
            await pause(self.throttled_seconds)
            if self._held is not None:
                await self._released.wait()
        return await self._send_now(request, expect_response)

    @property
    def throttled_until(self) -> float:
        """The loop time at which the broker reads from this connection again; past when it does."""
        return self._patience.throttled_until

    @property
    def throttled_seconds(self) -> float:
        """For how much longer the broker reads nothing from this connection; 0 when it does."""
        return max(0.0, self.throttled_until - float(self._loop.time()))

    def post(self, request: HandWrittenRequest[T]) -> "asyncio.Future[T]":
        """Write a request at once; the future gets its response, or RequestTimedOutError. Raises
        KafkaConnectionError.

        A request that is not answered in time (see `Patience`) ends the connection, because its answer would
        be taken for that of the next request.
        """
        if self._writer is None:
            raise KafkaConnectionError(f"No connection to broker at {self._host}:{self._port}")
        answered: asyncio.Future[T] = self._loop.create_future()
        if self._held is not None:
            self._held.append((request, answered))
        else:
            self._write(self._writer.transport, request, answered)
        return answered

    def _write(
        self, transport: asyncio.WriteTransport, request: HandWrittenRequest[T], answered: "asyncio.Future[T]"
    ) -> None:
        agreed = request.prepare(self._versions)
        correlation_id = self._next_correlation_id()
        header = agreed.header(correlation_id, self._client_id_bytes)
        size = len(header) + sum(map(len, agreed.pieces))
        pieces = [_INT32.pack(size), header, *agreed.pieces]
        if size < _JOIN_BELOW_BYTES:
            transport.write(b"".join(pieces))
        else:
            transport.writelines(pieces)
        self._written_bytes += size
        agreed.sent_at = self._loop.time()
        self._requests.append((correlation_id, agreed, answered))
        if self._timer is None:
            self._timer = self._loop.call_later(self._request_timeout, self._check_answers)

    async def _do_sasl_handshake(self) -> None:
        """Log in with the present credentials. Raises aiokafka's errors or TokenError."""
        session_seconds = await log_in(super().send, self._sasl_mechanism, self._authenticator())
        if session_seconds > 0:
            wait_seconds = max(session_seconds * REAUTHENTICATE_AT, MIN_SESSION_SECONDS)
            self._renewal_timer = self._loop.call_later(
                wait_seconds, self._renew, session_seconds - wait_seconds
            )

    async def _take_credentials(self) -> None:
        """Read the present credentials, because files may have changed."""
        access = self._sasl_oauth_token_provider
        if not isinstance(access, ClusterAccess):
            return
        if access.rotates:
            await asyncio.to_thread(access.refresh)
        self._ssl_context = access.context
        if isinstance(access.security.sasl, SaslLogin):
            self._sasl_plain_username = access.security.sasl.username
            self._sasl_plain_password = access.security.sasl.password

    def _authenticator(self) -> Authenticator:
        access = self._sasl_oauth_token_provider
        if isinstance(access, ClusterAccess) and isinstance(access.security.sasl, KerberosLogin):
            return KerberosAuthenticator(access.security.sasl, self.host)
        if self._sasl_mechanism == "OAUTHBEARER":
            return self.authenticator_oauth()  # type: ignore[no-any-return]
        if self._sasl_mechanism == "PLAIN":
            return self.authenticator_plain()  # type: ignore[no-any-return]
        return self.authenticator_scram()  # type: ignore[no-any-return]

    def _renew(self, left_seconds: float) -> None:
        renewal = self._log_in_again(max(left_seconds, self._request_timeout))
        self._renewal = self._loop.create_task(
            renewal, name=f"renew the session at {self._host}:{self._port}"
        )

    async def _log_in_again(self, most_seconds: float) -> None:
        """Renew the session between two requests. A connection whose session ends is closed."""
        self._held = deque()
        self._released.clear()
        try:
            async with asyncio.timeout(most_seconds):
                while self._requests:
                    self._drained.clear()
                    await self._drained.wait()
                await pause(self.throttled_seconds)
                await self._take_credentials()
                await self._do_sasl_handshake()
        except (OSError, ValueError, AssertionError, KafkaError, TokenError) as error:
            # The next request opens another connection, and gets the error.
            self._renewal = None
            self.close(reason=CloseReason.AUTH_FAILURE, exc=error)
        except asyncio.CancelledError:
            self._renewal = None
            self.close(reason=CloseReason.SHUTDOWN)
            raise
        else:
            self._renewal = None
            self._release()

    def _release(self) -> None:
        """Send the requests that waited, or fail them when the connection has ended."""
        held, self._held = self._held or (), None
        self._released.set()
        for request, answered in held:
            if answered.done():
                continue
            if self._writer is None:
                answered.set_exception(
                    KafkaConnectionError(f"Connection at {self._host}:{self._port} closed")
                )
                continue
            try:
                self._write(self._writer.transport, request, answered)
            except KafkaError as error:
                answered.set_exception(error)

    def is_quiet(self) -> bool:
        """Whether the last answer is more than a second old."""
        return not self.has_heard_within(_QUIET_SECONDS)

    def has_heard_within(self, seconds: float) -> bool:
        """Whether the last answer is not older."""
        silent_seconds: float = self._loop.time() - self._heard_at
        return silent_seconds <= seconds

    def close(self, reason: Any = None, exc: BaseException | None = None) -> "asyncio.Future[None] | None":
        """Close the connection; requests without an answer fail with KafkaConnectionError."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
        if self._renewal_timer is not None:
            self._renewal_timer.cancel()
            self._renewal_timer = None
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
        closed: asyncio.Future[None] | None = super().close(reason, exc)
        if self._held is not None:
            self._release()
        return closed

    def _check_answers(self) -> None:
        """Runs at the time-out of what was then the oldest request; mostly it was answered long ago."""
        self._timer = None
        oldest = next((entry for entry in self._requests if isinstance(entry[1], AgreedRequest)), None)
        if oldest is None:
            return
        _, request, answered = oldest
        left_seconds = self._patience.left_seconds(
            self._loop.time(), sent_at=request.sent_at, moved_bytes=self._moved_bytes()
        )
        if left_seconds > 0:
            self._timer = self._loop.call_later(left_seconds, self._check_answers)
            return
        if not answered.done():
            answered.set_exception(RequestTimedOutError())
        self.close(reason=CloseReason.CONNECTION_TIMEOUT)

    def _moved_bytes(self) -> int:
        """Bytes that were received, and bytes that the operating system has accepted for sending."""
        received = self._frames.received_bytes if self._frames is not None else 0
        unsent = self._writer.transport.get_write_buffer_size() if self._writer is not None else 0
        return received + self._written_bytes - unsent

    def _largest_frame(self) -> int:
        request = self._requests[0][1] if self._requests else None
        return request.largest_answer_bytes if isinstance(request, AgreedRequest) else LARGEST_FRAME_BYTES

    def _note_answer(self, throttle_ms: int) -> None:
        self._patience.answered(self._loop.time(), moved_bytes=self._moved_bytes(), throttle_ms=throttle_ms)
        if throttle_ms > LONGEST_THROTTLE_SECONDS * 1000 and self._muted is None:
            # The broker reads another one at once.
            self._muted = self._loop.call_later(LONGEST_THROTTLE_SECONDS, self.close, CloseReason.IDLE_DROP)

    def _take_frame(self, frame: Frame) -> None:
        """A response belongs to the oldest request. Anything unreadable ends the connection."""
        if self.is_quiet():
            self.contact += 1
        self._heard_at = self._loop.time()
        try:
            self._handle_frame(frame)
            if not self._requests:
                self._drained.set()
        except (struct.error, ValueError, IndexError, KafkaError) as error:
            self.close(reason=CloseReason.CONNECTION_BROKEN, exc=error)

    def _handle_frame(self, frame: Frame) -> None:
        if not self._requests:
            raise KafkaConnectionError(f"{self._host}:{self._port} sent a response that no request waits for")
        correlation_id, request, answered = self._requests[0]
        if not isinstance(request, AgreedRequest):
            super()._handle_frame(bytes(frame))
            if answered.done() and not answered.cancelled() and answered.exception() is None:
                self._note_answer(getattr(answered.result(), "throttle_time_ms", 0))
            return
        (answered_id,) = _INT32.unpack_from(frame)
        if answered_id != correlation_id:
            if not answered.done():
                answered.set_exception(
                    CorrelationIdError(
                        f"Correlation ids do not match: sent {correlation_id}, recv {answered_id}"
                    )
                )
            self.close(reason=CloseReason.OUT_OF_SYNC)
            return
        answer = request.read(frame, _INT32.size)
        self._note_answer(request.throttle_ms)
        if not answered.done():
            answered.set_result(answer)
        self._last_action = time.monotonic()  # The library closes idle connections by it.
        self._requests.popleft()

    def _connection_lost(self, error: BaseException | None) -> None:
        self.close(reason=CloseReason.CONNECTION_BROKEN, exc=error)
        if self._closed_fut is not None and not self._closed_fut.done():
            self._closed_fut.set_result(None)
        self._frames = None


def _keep_alive(opened: socket.socket) -> None:
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None))  # macOS has another name
    if idle is not None:
        opened.setsockopt(socket.IPPROTO_TCP, idle, _KEEP_ALIVE_SECONDS)


async def _result_of(answered: "asyncio.Future[T]") -> T:
    return await answered
