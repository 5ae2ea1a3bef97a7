"""Decides whether a port may be open to other machines. Without gRPC, because the supervisor uses it too."""

from twinlog.config import Address, Configuration, Service
from twinlog.config.security import SecuritySettings
from twinlog.errors import ConfigError

INSECURE = "insecure"


def lacks(security: SecuritySettings, service: Service) -> str:
    """The missing protection of a port: "TLS", "authentication", both, or nothing."""
    missing = []
    if security.port(service).tls is None:
        missing.append("TLS")
    if not security.is_authenticated(service):
        missing.append("authentication")
    return " and no ".join(missing)


def refuse_open_port(configuration: Configuration, service: Service) -> None:
    """Raises ConfigError (INSECURE_LISTEN) for a port that other machines can reach and that would let
    anybody in."""
    listen = configuration.endpoints[service].listen
    missing = lacks(configuration.security, service)
    if missing and not listen.is_loopback and not configuration.security.port(service).insecure:
        raise _refusal(service, listen, missing)


def _refusal(service: Service, listen: Address, missing: str) -> ConfigError:
    key = f"twinlog.{service}.listen"
    return ConfigError(
        f"{key}: {listen} can be reached from other machines, and there is no {missing}: all who reach it"
        " could change what is copied. Set the twinlog.tls and twinlog.auth keys (docs/security.md), listen"
        f" on 127.0.0.1, or, inside a network you trust, set twinlog.{service}.insecure = true.",
        reason="INSECURE_LISTEN",
        metadata={"key": key, "address": str(listen)},
    )
