"""The HTTP server of metrics: `prometheus_client`'s, with bounds.

Invariants: at most MAX_CONNECTIONS are served, one more is closed at once; one whose request is not whole
after SILENT_SECONDS, or that does not take its answer in that time, is closed; on loopback only this
machine's own names are answered, so that no other site's page can read metrics through a browser here (DNS
rebinding).
"""

import ipaddress
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from twinlog.config import Address

MAX_CONNECTIONS = 16
SILENT_SECONDS = 10.0
METRICS_PATH = "/metrics"

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def serve_metrics(
    listen: Address, port: int, registry: CollectorRegistry, *, silent_seconds: float = SILENT_SECONDS
) -> WSGIServer:
    """Bind `port` at the host of `listen` and serve in threads until `shutdown`. Raises OSError."""
    host = listen.host.strip("[]")
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]

    class Server(_BoundedServer):
        address_family = family
        seconds = silent_seconds

    app: App = _of_one_path(make_wsgi_app(registry))
    if listen.is_loopback:
        app = _of_own_host(app)
    server = make_server(str(address[0]), port, app, Server, handler_class=_Handler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


def is_local_name(host: str) -> bool:
    """Whether a Host header is localhost or a number: no DNS is asked for those, so none of somebody else's
    can be made to point here.

    >>> [is_local_name(host) for host in ("localhost:17411", "127.0.0.1:17411", "[::1]:1", "evil.example:1")]
    [True, True, True, False]
    """
    name = (host.rsplit(":", 1)[0] if not host.endswith("]") else host).strip("[]").lower()
    if name == "localhost":
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _of_one_path(app: App) -> App:
    """Answers only this path: a probe of another path must not take the answer for health."""

    def guarded(environment: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environment.get("PATH_INFO") == METRICS_PATH:
            return app(environment, start_response)
        start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"metrics are at /metrics; health is told by gRPC: python -m twinlog.service.probe\n"]

    return guarded


def _of_own_host(app: App) -> App:
    def guarded(environment: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        # HTTP/1.0 has no such header, and no browser uses it.
        if is_local_name(environment.get("HTTP_HOST", "localhost")):
            return app(environment, start_response)
        start_response("421 Misdirected Request", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"this server is not called so: ask for 127.0.0.1 or localhost\n"]

    return guarded


class _BoundedServer(ThreadingWSGIServer):
    seconds = SILENT_SECONDS

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self._room = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(*arguments, **more)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A disconnected client is no error of ours."""


class _Handler(WSGIRequestHandler):
    server: _BoundedServer

    def setup(self) -> None:
        super().setup()
        # The time of a socket is that of one read, but of a whole answer.
        self.connection.settimeout(self.server.seconds)
        self._late = threading.Timer(self.server.seconds, self._give_up)
        self._late.daemon = True
        self._late.start()

    def _give_up(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def parse_request(self) -> bool:
        try:
            return super().parse_request()
        finally:
            self._late.cancel()

    def finish(self) -> None:
        self._late.cancel()
        super().finish()

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 (the name of the base)
        """Log nothing: scrapes are frequent."""
