"""Finds and reserves the address of every child before any of them starts."""

import contextlib
import errno
import os
import socket
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from twinlog.config import Address, Service, ServiceEndpoints
from twinlog.config.load import same_address
from twinlog.errors import ConfigError

Bind = Callable[[Address], Address]
"""Binds an address and returns it with its real port. Raises OSError."""

_WILDCARDS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 (compared with, not bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAddress:
    listen: Address
    """With the real port."""
    endpoint: Address
    """The address for peers and the command line."""
    local: Address
    """The address for this machine, whatever lies between the service and others."""
    metrics: Address | None = None
    """The address of the service's metrics, with the real port; None = not known in advance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Other runs on this machine."""

    holders: Mapping[str, str] = field(default_factory=dict)
    """Their addresses -> the text that names the holder, also while nothing listens there."""
    make_way: bool = False
    """Take a free port when a default one is taken."""


def reserve_addresses(
    endpoints: Mapping[Service, ServiceEndpoints],
    services: Collection[Service],
    stack: ExitStack,
    *,
    neighbours: Neighbours | None = None,
) -> dict[Service, ServiceAddress]:
    """Bind (without listening) the address of every service; port 0 becomes a free one. `stack` closes the
    sockets.

    While a socket is bound with SO_REUSEADDR and does not listen, a child that binds with SO_REUSEADDR, as
    gRPC does, gets the port, the kernel gives it to no other program, and a restarted child finds it free.

    Raises ConfigError (ADDRESS_IN_USE) that names `twinlog.<service>.listen` when another process has the
    address, and both keys when the configuration gives one address twice.
    """
    others = neighbours or Neighbours()
    _refuse_one_address_twice(endpoints, services)
    own: list[Address] = []

    def bind(wanted: Address) -> Address:
        # Sockets that do not listen do not conflict: the kernel would give the address twice.
        if any(wanted.excludes(taken) for taken in own):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        own.append(_bind(wanted, stack, others))
        return own[-1]

    # Configured addresses come before defaults, and both before metrics, which can move.
    in_order = sorted(services, key=lambda service: endpoints[service].listen_is_default)
    listens = {service: _listen(service, endpoints[service], bind, others) for service in in_order}
    in_order = sorted(services, key=lambda service: endpoints[service].metrics_is_default)
    metrics = {service: _metrics_address(endpoints[service], bind) for service in in_order}
    return {
        service: _service_address(listens[service], metrics[service], endpoints[service])
        for service in services
    }


def child_overrides(addresses: Mapping[Service, ServiceAddress]) -> dict[str, str]:
    """Properties that tell every child its own address and those of its peers."""
    overrides: dict[str, str] = {}
    for service, address in addresses.items():
        overrides[f"twinlog.{service}.listen"] = str(address.listen)
        overrides[f"twinlog.{service}.endpoint"] = str(address.endpoint)
        if address.metrics is not None:
            overrides[f"twinlog.{service}.metrics.listen"] = str(address.metrics)
    return overrides


def _refuse_one_address_twice(
    endpoints: Mapping[Service, ServiceEndpoints], services: Collection[Service]
) -> None:
    """All services of a run are on one machine. Checks configured addresses only: a default one moves."""
    seen: list[tuple[str, Address]] = []
    for service in services:
        entry = endpoints[service]
        chosen = [(f"twinlog.{service}.listen", entry.listen, entry.listen_is_default)]
        if entry.metrics_listen is not None:
            key = f"twinlog.{service}.metrics.listen"
            chosen.append((key, entry.metrics_listen, entry.metrics_is_default))
        for key, address, is_default in chosen:
            if is_default:
                continue
            for other, taken in seen:
                if address.excludes(taken):
                    raise same_address(key, other, address)
            seen.append((key, address))


def _listen(service: Service, configured: ServiceEndpoints, bind: Bind, neighbours: Neighbours) -> Address:
    key = f"twinlog.{service}.listen"
    try:
        return bind(configured.listen)
    except OSError as error:
        is_in_use = error.errno == errno.EADDRINUSE
        if not (is_in_use and neighbours.make_way and configured.listen_is_default):
            raise ConfigError(
                f"{key}: {_why(error, configured.listen, service, neighbours)}",
                reason="ADDRESS_IN_USE" if is_in_use else "ADDRESS_INVALID",
                metadata={"key": key, "address": str(configured.listen)},
            ) from error
        return bind(Address(host=configured.listen.host, port=0))


def _service_address(
    listen: Address, metrics: Address | None, configured: ServiceEndpoints
) -> ServiceAddress:
    local = Address(host=_WILDCARDS.get(listen.host, listen.host), port=listen.port)
    follows_listen = configured.endpoint.port == 0 or configured.endpoint == configured.listen
    endpoint = local if follows_listen else configured.endpoint
    return ServiceAddress(listen=listen, endpoint=endpoint, local=local, metrics=metrics)


def _metrics_address(configured: ServiceEndpoints, bind: Bind) -> Address | None:
    """None when a configured address is not available: the service logs that and runs without metrics."""
    wanted = configured.metrics_listen
    if wanted is None:
        return None
    for port in (wanted.port, 0) if configured.metrics_is_default else (wanted.port,):
        with contextlib.suppress(OSError):
            return bind(Address(host=wanted.host, port=port))
    return None


def _bind(wanted: Address, stack: ExitStack, neighbours: Neighbours) -> Address:
    """The address with its real port; `stack` closes the socket. Raises OSError."""
    if str(wanted) in neighbours.holders:
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    family, kind, protocol, _, address = socket.getaddrinfo(
        wanted.host.strip("[]"), wanted.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    holder = stack.enter_context(socket.socket(family, kind, protocol))
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(address)
    return Address(host=wanted.host, port=int(holder.getsockname()[1]))


def _why(error: OSError, listen: Address, service: Service, neighbours: Neighbours) -> str:
    if error.errno == errno.EADDRINUSE:
        holder = neighbours.holders.get(str(listen), "another process")
        return (
            f"{listen} is in use by {holder}."
            f" Choose another port, or `twinlog.{service}.listen = {listen.host}:0` for any free one."
        )
    return f"cannot listen on {listen}: {error.strerror or error}"
