"""Which address each child serves on, found out and reserved before any of them starts."""

import contextlib
import errno
import os
import socket
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from twinlog.config import Address, Service, ServiceEndpoints
from twinlog.errors import ConfigError

_WILDCARDS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 (compared with, not bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAddress:
    listen: Address
    """With the real port."""
    endpoint: Address
    """Where peers and the command line find it."""
    local: Address
    """Where this machine reaches it, whatever stands between the others and it."""
    metrics: Address | None = None
    """Where the service serves its metrics, with the real port; None = nowhere that is known beforehand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Other runs on this machine."""

    holders: Mapping[str, str] = field(default_factory=dict)
    """An address they have -> the words for who has it. Theirs also while nothing listens there."""
    make_way: bool = False
    """Take a free port where a default one is taken."""


def reserve_addresses(
    endpoints: Mapping[Service, ServiceEndpoints],
    services: Collection[Service],
    stack: ExitStack,
    *,
    neighbours: Neighbours | None = None,
) -> dict[Service, ServiceAddress]:
    """Bind (not listen on) the address of every service; port 0 becomes a free one. `stack` gives them back.

    While a socket is bound with SO_REUSEADDR and does not listen, a child that binds with SO_REUSEADDR, as
    gRPC does, gets the port, the kernel gives it to nobody else, and a child that is restarted finds it free.
    Raises ConfigError (ADDRESS_IN_USE) naming `twinlog.<service>.listen` when another process has it.
    """
    others = neighbours or Neighbours()
    return {service: _reserve(service, endpoints[service], stack, others) for service in services}


def child_overrides(addresses: Mapping[Service, ServiceAddress]) -> dict[str, str]:
    """The properties by which every child learns its own address and those of its peers."""
    overrides: dict[str, str] = {}
    for service, address in addresses.items():
        overrides[f"twinlog.{service}.listen"] = str(address.listen)
        overrides[f"twinlog.{service}.endpoint"] = str(address.endpoint)
        if address.metrics is not None:
            overrides[f"twinlog.{service}.metrics.listen"] = str(address.metrics)
    return overrides


def _reserve(
    service: Service, configured: ServiceEndpoints, stack: ExitStack, neighbours: Neighbours
) -> ServiceAddress:
    key = f"twinlog.{service}.listen"
    try:
        listen = _bind(configured.listen, stack, neighbours)
    except OSError as error:
        is_in_use = error.errno == errno.EADDRINUSE
        if not (is_in_use and neighbours.make_way and configured.listen_is_default):
            raise ConfigError(
                f"{key}: {_why(error, configured.listen, service, neighbours)}",
                reason="ADDRESS_IN_USE" if is_in_use else "ADDRESS_INVALID",
                metadata={"key": key, "address": str(configured.listen)},
            ) from error
        listen = _bind(Address(host=configured.listen.host, port=0), stack, neighbours)
    local = Address(host=_WILDCARDS.get(listen.host, listen.host), port=listen.port)
    follows_listen = configured.endpoint.port == 0 or configured.endpoint == configured.listen
    endpoint = local if follows_listen else configured.endpoint
    metrics = _metrics_address(configured, stack, neighbours)
    return ServiceAddress(listen=listen, endpoint=endpoint, local=local, metrics=metrics)


def _metrics_address(
    configured: ServiceEndpoints, stack: ExitStack, neighbours: Neighbours
) -> Address | None:
    """None where an address that somebody chose cannot be had: the service says so, and runs without."""
    wanted = configured.metrics_listen
    if wanted is None:
        return None
    for port in (wanted.port, 0) if configured.metrics_is_default else (wanted.port,):
        with contextlib.suppress(OSError):
            return _bind(Address(host=wanted.host, port=port), stack, neighbours)
    return None


def _bind(wanted: Address, stack: ExitStack, neighbours: Neighbours) -> Address:
    """The address with its real port, held by `stack`. Raises OSError."""
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
