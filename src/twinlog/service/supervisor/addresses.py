"""Which address each child serves on, found out and reserved before any of them starts."""

import errno
import socket
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

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


def reserve_addresses(
    endpoints: Mapping[Service, ServiceEndpoints], services: Collection[Service], stack: ExitStack
) -> dict[Service, ServiceAddress]:
    """Bind (not listen on) the address of every service; port 0 becomes a free one. `stack` gives them back.

    While a socket is bound with SO_REUSEADDR and does not listen, a child that binds with SO_REUSEADDR, as
    gRPC does, gets the port, the kernel gives it to nobody else, and a child that is restarted finds it free.
    Raises ConfigError (ADDRESS_IN_USE) naming `twinlog.<service>.listen` when another process listens there.
    """
    return {service: _reserve(service, endpoints[service], stack) for service in services}


def child_overrides(addresses: Mapping[Service, ServiceAddress]) -> dict[str, str]:
    """The properties by which every child learns its own address and those of its peers."""
    overrides: dict[str, str] = {}
    for service, address in addresses.items():
        overrides[f"twinlog.{service}.listen"] = str(address.listen)
        overrides[f"twinlog.{service}.endpoint"] = str(address.endpoint)
    return overrides


def _reserve(service: Service, configured: ServiceEndpoints, stack: ExitStack) -> ServiceAddress:
    host, port = configured.listen.host, configured.listen.port
    key = f"twinlog.{service}.listen"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        holder = stack.enter_context(socket.socket(family, kind, protocol))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(address)
    except OSError as error:
        raise ConfigError(
            f"{key}: {_why(error, configured.listen, service)}",
            reason="ADDRESS_IN_USE" if error.errno == errno.EADDRINUSE else "ADDRESS_INVALID",
            metadata={"key": key, "address": str(configured.listen)},
        ) from error
    listen = Address(host=host, port=int(holder.getsockname()[1]))
    local = Address(host=_WILDCARDS.get(host, host), port=listen.port)
    follows_listen = configured.endpoint.port == 0 or configured.endpoint == configured.listen
    endpoint = local if follows_listen else configured.endpoint
    return ServiceAddress(listen=listen, endpoint=endpoint, local=local)


def _why(error: OSError, listen: Address, service: Service) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"{listen} is in use by another process, perhaps another twinlog run."
            f" Choose another port, or `twinlog.{service}.listen = {listen.host}:0` for any free one."
        )
    return f"cannot listen on {listen}: {error.strerror or error}"
