"""Runs the page: what follows the services, and the server, until a signal."""

import asyncio
import json
import os
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import grpc
from aiohttp import web

from twinlog.cli.common.names import CLOCK
from twinlog.cli.ui.access import SECURITY_HEADERS, PageCertificate, is_own_host, is_own_page, may_look
from twinlog.cli.ui.feed import GROUP_FIELDS, PARTITION_FIELDS, Feed
from twinlog.cli.ui.plans import Plans
from twinlog.cli.ui.upstream import TABLES, Upstream
from twinlog.config import Address
from twinlog.errors import TwinlogError
from twinlog.printable import printable_json
from twinlog.reasons import known_reasons
from twinlog.service.access.tokens import TokenFile
from twinlog.service.runtime import handle_signals
from twinlog.service.waiting import wait_or_stop

# The HTTP side: static files, one event stream for each browser, plans on request. GET only.
#
# Invariants: at most MAX_STREAMS browsers read the stream, half of them from one address, the next one is
# told so; every write to a browser is bounded, one that does not read is dropped; a plan is asked for once by
# all who want it.

MAX_STREAMS = 64
MAX_STREAMS_OF_ADDRESS = MAX_STREAMS // 2
TURN_SECONDS = 1.0
WRITE_SECONDS = 20.0
QUIET_SECONDS = 10.0
"""A stream says something at least this often."""

_PAGE = resources.files("twinlog.cli.ui") / "page"
_KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
"""What a browser may ask for; licences and the manifest of the libraries stay here."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True, kw_only=True)
class Page:
    """What the server needs to know."""

    feed: Feed
    plans: Plans
    listen: Address
    stop: asyncio.Event
    tokens: TokenFile | None = None
    host_names: frozenset[str] = frozenset()
    """Names beside the address under which browsers reach the server."""
    streams: Counter[str] = field(default_factory=Counter)
    """Open ones by the browser's address."""
    turned: asyncio.Event = field(default_factory=asyncio.Event)
    """Replaced at each turn: who waits for one waits for the next."""

    async def turn(self) -> None:
        """Loop: once a second encode what changed, and wake the streams."""
        while not await wait_or_stop(self.stop, TURN_SECONDS):
            if self.feed.next_turn():
                self.turned.set()
                self.turned = asyncio.Event()
        self.turned.set()


def application(page: Page) -> web.Application:
    """The routes."""

    @web.middleware  # type: ignore[untyped-decorator]
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not is_own_host(request.host, page.listen, page.host_names):
            told = "this server does not have the host name of the request: allow it with --host-name"
            return _refusal(421, "HOST_UNKNOWN", told)
        is_api = request.path.startswith("/api/")
        if is_api and not is_own_page(request.headers):
            return _refusal(403, "OTHER_SITE", "a page of another site asks for this: open this server's own")
        if is_api and not may_look(request.headers.get("Authorization", ""), page.tokens):
            return _refusal(401, "NOT_AUTHENTICATED", "a token is needed: the page asks for it")
        try:
            return await handler(request)
        except web.HTTPException as error:
            return _refusal(error.status, "HTTP_" + str(error.status), error.reason)

    app = web.Application(middlewares=[guarded], client_max_size=1024)
    for path, file in _files().items():
        app.router.add_get(path, _static(file.read_bytes(), _KINDS[Path(file.name).suffix]))
    app.router.add_get("/api/words", _words)

    app.router.add_get("/api/stream", partial(_stream, page=page))
    app.router.add_get("/api/plan", partial(_plan, page=page))
    return app


def _files() -> dict[str, Traversable]:
    """By path. The page begins at `/`."""
    found = {
        f"{folder}/{file.name}": file
        for folder, place in (("", _PAGE), ("/vendor", _PAGE / "vendor"))
        for file in place.iterdir()
        if Path(file.name).suffix in _KINDS
    }
    return {"/": found.pop("/index.html"), **found}


def _static(content: bytes, kind: str) -> Handler:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=content, content_type=kind, charset="utf-8", headers=SECURITY_HEADERS)

    return answer


async def _words(_: web.Request) -> web.StreamResponse:
    """What does not change: fields of rows, meaning and remedy of reasons."""
    return _json(200, {"partition": PARTITION_FIELDS, "group": GROUP_FIELDS, "reasons": known_reasons()})


async def _plan(request: web.Request, page: Page) -> web.StreamResponse:
    """What a failover of a flow would do now; the reason where the service does not say."""
    flow = request.query.get("flow", "")
    if flow not in page.feed["flows"].rows:
        return _refusal(404, "FLOW_UNKNOWN", "no service reports this flow")
    try:
        return _json(200, await page.plans.of(flow))
    except TwinlogError as error:
        return _json(200, {"reason": error.reason, "message": str(error)})


async def _stream(request: web.Request, page: Page) -> web.StreamResponse:
    address = request.remote or ""
    if page.streams.total() >= MAX_STREAMS or page.streams[address] >= MAX_STREAMS_OF_ADDRESS:
        told = (
            f"{page.streams.total()} pages are open, {page.streams[address]} of them at {address}, and this"
            " server has room for no more: close some"
        )
        refused = _refusal(503, "TOO_MANY_WATCHERS", told)
        refused.headers["Retry-After"] = "10"
        return refused
    page.streams[address] += 1
    try:
        response = web.StreamResponse(
            headers={**SECURITY_HEADERS, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        )
        await response.prepare(request)
        await _tell(response, page)
        return response
    finally:
        page.streams[address] -= 1
        page.streams += Counter()  # drop those without any


async def _tell(response: web.StreamResponse, page: Page) -> None:
    """Until `stop`, or until the browser is gone or reads too slowly."""
    turn = -1
    try:
        while not page.stop.is_set():
            turned = page.turned
            newest = page.feed.turn
            frames = [] if turn == newest else page.feed.since(turn)
            turn = newest
            async with asyncio.timeout(WRITE_SECONDS):
                for frame in frames or [b": alive\n\n"]:
                    await response.write(frame)
            await _next(turned)
    except (TimeoutError, ConnectionError):
        return


async def _next(turned: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(QUIET_SECONDS):
            await turned.wait()
    except TimeoutError:
        return


def _refusal(status: int, reason: str, message: str) -> web.Response:
    return _json(status, {"reason": reason, "message": message})


def _json(status: int, document: Any) -> web.Response:
    text = printable_json(json.dumps(document, ensure_ascii=False))
    return web.Response(status=status, text=text, content_type="application/json", headers=SECURITY_HEADERS)


STOP_SECONDS = 2.0


async def serve(
    endpoints: Mapping[str, str],
    open_to: Callable[[str, str], grpc.aio.Channel],
    bound: socket.socket,
    listen: Address,
    certificate: PageCertificate | None,
    tokens: TokenFile | None,
    host_names: frozenset[str],
    *,
    same_services: str,
    ready: Callable[[str], None],
) -> None:
    """Until SIGTERM or Ctrl-C; a second one ends the process at once."""
    stop = asyncio.Event()
    port = bound.getsockname()[1]
    listen = Address(host=listen.host, port=port)
    feed = Feed(TABLES, in_snapshots_only=("history",))
    plans = Plans(endpoint=endpoints["checkpoint"], open_to=open_to, clock=CLOCK.get())
    page = Page(feed=feed, plans=plans, listen=listen, stop=stop, tokens=tokens, host_names=host_names)
    runner = web.AppRunner(application(page), access_log=None, handle_signals=False)
    with handle_signals(on_first=lambda _: stop.set(), on_second=lambda _: os._exit(1)):
        await runner.setup()
        try:
            context = None if certificate is None else certificate.context
            site = web.SockSite(runner, bound, ssl_context=context, shutdown_timeout=STOP_SECONDS)
            await site.start()
            async with asyncio.TaskGroup() as group:
                upstream = Upstream(endpoints, open_to, feed, CLOCK.get(), same_services)
                group.create_task(upstream.run(stop), name="upstream")
                group.create_task(page.turn(), name="turns")
                if certificate is not None:
                    group.create_task(certificate.renew(stop), name="certificate")
                ready(f"{'http' if context is None else 'https'}://{listen}/")
        finally:
            await runner.cleanup()
