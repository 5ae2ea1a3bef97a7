"""Runs the page: what follows the services, and the server, until a signal."""

import asyncio
import os
import socket
from collections.abc import Callable, Mapping

import grpc
from aiohttp import web

from twinlog.cli.common.times import CLOCK
from twinlog.cli.ui.access import PageCertificate
from twinlog.cli.ui.feed import Feed
from twinlog.cli.ui.plans import Plans
from twinlog.cli.ui.server import Page, application
from twinlog.cli.ui.upstream import TABLES, Upstream
from twinlog.config import Address
from twinlog.service.access.tokens import TokenFile
from twinlog.service.signals import handle_signals

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
