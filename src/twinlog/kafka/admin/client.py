"""confluent-kafka's AdminClient under asyncio: opened when first needed, never blocking the loop, always
bounded, and closed again when it is idle.

Its calls return `concurrent.futures`; its logs and errors wait in a queue that must be polled. This module
polls it during calls: logs go to logging at DEBUG, and a refused password ends the call at once, whereas
librdkafka would retry until the call times out.

A client has four threads and its own connections, and services rarely change topics and configs: with a
hundred flows those threads would be most of a process.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaError as LibrdkafkaError
from confluent_kafka.admin import AdminClient

from twinlog.errors import KafkaError, StateError
from twinlog.kafka.errors import (
    KAFKA_CLIENT_ERRORS,
    TIMEOUT,
    UNAVAILABLE,
    from_librdkafka,
    from_reason,
    translate,
)
from twinlog.kafka.security.access import ClusterAccess

_log = logging.getLogger("twinlog.kafka.librdkafka")

IDLE_SECONDS = 60.0
_POLL_SECONDS = 0.05
_ANSWER_SHARE = 0.9
"""The share of the time-out for librdkafka, so that its own, more precise error comes first."""
_GIVE_UP_AFTER_SECONDS = {
    LibrdkafkaError._AUTHENTICATION: 0.5,
    LibrdkafkaError.SASL_AUTHENTICATION_FAILED: 0.5,
    LibrdkafkaError._SSL: 2.0,
}
"""Errors that do not go away by waiting, and how long other brokers may still accept what one refused."""
_AWAY = frozenset({LibrdkafkaError._ALL_BROKERS_DOWN, LibrdkafkaError._TRANSPORT, LibrdkafkaError._RESOLVE})

_UNANSWERED = frozenset({TIMEOUT.name, UNAVAILABLE.name})

K = TypeVar("K", bound=Hashable)


class _DebugLog:
    """An object that librdkafka accepts as a logger."""

    def log(self, level: int, message: str, *args: object) -> None:
        """All of librdkafka's levels: what concerns the caller arrives as an error."""
        _log.debug(message, *args)


class AdminSession:
    """One lazily opened AdminClient. Do not share it between event loops."""

    def __init__(
        self,
        alias: str,
        options: Callable[[], Mapping[str, Any]],
        *,
        timeout_seconds: float,
        access: ClusterAccess | None = None,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """`options` returns `librdkafka_options` at each opening, and may raise ConfigError. A client is
        replaced when its `access` has changed, because librdkafka keeps its initial credentials. A client
        without a call for `idle_seconds` is closed; the next call opens another one."""
        self._access = access
        self._version = 0
        self.alias = alias
        self.timeout_seconds = timeout_seconds
        self._options = options
        self._admin: AdminClient | None = None
        self._trouble: LibrdkafkaError | None = None
        self._closed = False
        self._idle_seconds = idle_seconds
        self._calls = 0
        """Running calls."""
        self._idle: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a client, with its threads."""
        return self._admin is not None

    async def one(self, doing: str, start: "Callable[[AdminClient, float], Future[Any]]") -> Any:
        """Run one call that returns one future. Raises KafkaError.

        `start` gets the client and the number of seconds for request_timeout.
        """
        settled = await self._settle(doing, lambda admin, seconds: {None: start(admin, seconds)})
        answer = settled[None]
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    async def each(
        self, doing: str, start: "Callable[[AdminClient, float], Mapping[K, Future[Any]]]"
    ) -> dict[K, Any | KafkaError]:
        """Run calls that return a future per resource; return each key's result or error.

        Raises KafkaError when credentials or certificates are refused; a cluster that is down is an error per
        key.
        """
        return await self._settle(doing, start)

    def close(self) -> None:
        """Drop the client. Returns at once: librdkafka ends in a separate thread."""
        self._closed = True
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        self._discard()

    async def _settle(
        self, doing: str, start: "Callable[[AdminClient, float], Mapping[K, Future[Any]]]"
    ) -> dict[K, Any | KafkaError]:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self.timeout_seconds
        try:
            async with asyncio.timeout_at(give_up_at):
                admin = await self._opened()
        except KAFKA_CLIENT_ERRORS as error:
            raise translate(error, doing, alias=self.alias) from error
        self._trouble = None
        self._calls += 1
        waiting: dict[asyncio.Future[Any], K] = {}
        settled: dict[K, Any | KafkaError] = {}
        try:
            try:
                futures = start(admin, self.timeout_seconds * _ANSWER_SHARE)
            except (*KAFKA_CLIENT_ERRORS, TypeError, ValueError) as error:
                raise translate(error, doing, alias=self.alias) from error
            waiting = {asyncio.wrap_future(future): key for key, future in futures.items()}
            hopeless_at = give_up_at
            while waiting and loop.time() < give_up_at:
                done, _ = await asyncio.wait(
                    waiting, timeout=_POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                for future in done:
                    settled[waiting.pop(future)] = self._outcome(future, doing)
                admin.poll(0)
                if self._trouble is None or self._trouble.code() not in _GIVE_UP_AFTER_SECONDS:
                    continue
                patience_seconds = _GIVE_UP_AFTER_SECONDS[self._trouble.code()]
                hopeless_at = min(hopeless_at, loop.time() + patience_seconds)
                if waiting and loop.time() >= hopeless_at:
                    # A new client connects at once next time; this one would wait for its reconnect back-off.
                    self._discard()
                    raise from_librdkafka(self._trouble, doing, alias=self.alias)
            settled.update((key, self._no_answer(doing)) for key in waiting.values())
            if any(_is_timeout(answer) for answer in settled.values()):
                # This client would keep asking the broker that hangs; a new one tries another.
                self._discard()
            return settled
        finally:
            for future in waiting:
                future.cancel()
            self._calls -= 1
            self._await_next_call(loop)
            if self._admin is not admin:
                last = [admin]
                del admin
                _end_elsewhere(last)

    def _await_next_call(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the client unless there is another call."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if not self._calls and self._admin is not None:
            self._idle = loop.call_later(self._idle_seconds, self._discard_idle)

    def _discard_idle(self) -> None:
        self._idle = None
        if not self._calls:
            self._discard()

    def _outcome(self, future: "asyncio.Future[Any]", doing: str) -> Any | KafkaError:
        error = future.exception()
        if error is None:
            return future.result()
        failure = translate(error, doing, alias=self.alias)
        unanswered = failure.reason in _UNANSWERED and self._trouble is not None
        return self._no_answer(doing) if unanswered else failure

    def _no_answer(self, doing: str) -> KafkaError:
        """KAFKA_UNAVAILABLE or TLS_FAILED if librdkafka reported the cause, else KAFKA_TIMEOUT."""
        trouble = self._trouble
        if trouble is None:
            return from_reason(TIMEOUT, doing, alias=self.alias, detail=f"{self.timeout_seconds:g} s")
        if trouble.code() in _AWAY:
            return from_reason(UNAVAILABLE, doing, alias=self.alias, detail=trouble.str())
        return from_librdkafka(trouble, doing, alias=self.alias)

    async def _opened(self) -> AdminClient:
        """Return the client. Raises KAFKA_CLIENT_ERRORS (no token), ConfigError or StateError."""
        if self._access is not None and self._access.rotates and self._admin is not None:
            await asyncio.to_thread(self._access.refresh)
            if self._access.version != self._version:
                self._discard()
        if self._admin is not None:
            return self._admin
        # Before the options, because another client of the cluster may read new credentials meanwhile.
        version = 0 if self._access is None else self._access.version
        options = {} if self._closed else await asyncio.to_thread(self._options)
        if "oauth_cb" in options:
            # A client that gets no token reports nothing more.
            await asyncio.to_thread(options["oauth_cb"], "")
        return self._made(options, version)

    def _made(self, options: Mapping[str, Any], version: int) -> AdminClient:
        """The client that another call has opened meanwhile, or a new one."""
        if self._closed:
            raise StateError(f"the connection to cluster {self.alias} is closed", reason="CLIENT_CLOSED")
        if self._admin is None:
            self._version = version
            self._admin = AdminClient({**options, "error_cb": self._on_error}, logger=_DebugLog())
        return self._admin

    def _on_error(self, error: LibrdkafkaError) -> None:
        """Runs in `poll`, and so on the event loop's thread. Keeps the most informative error."""
        if self._trouble is None or error.code() != LibrdkafkaError._ALL_BROKERS_DOWN:
            self._trouble = error

    def _discard(self) -> None:
        if self._admin is not None:
            last = [self._admin]
            self._admin = None
            _end_elsewhere(last)


def _is_timeout(answer: object) -> bool:
    return isinstance(answer, KafkaError) and answer.reason == TIMEOUT.name


def _end_elsewhere(last: list[AdminClient]) -> None:
    """Drop a reference in a thread, because the end of a client joins librdkafka's threads."""
    threading.Thread(target=last.clear, name="kafka-admin-close", daemon=True).start()
