"""`twinlog ui`: serves the live page until it is stopped."""

import shlex
import socket
from functools import partial
from pathlib import Path

import typer

from twinlog.cli.common.call import Call, command
from twinlog.cli.common.location import channels, service_endpoints
from twinlog.cli.common.options import flag, option
from twinlog.config import Address
from twinlog.errors import ConfigError

DEFAULT_LISTEN = "127.0.0.1:8890"


@partial(command, takes=("config", "endpoint"))
def ui_command(
    call: Call,
    listen: str = option(
        "--listen HOST:PORT", "The address of the page; port 0 takes a free port.", DEFAULT_LISTEN
    ),
    certificate: Path | None = option("--certificate FILE", "PEM file with the certificate chain.", None),
    key: Path | None = option("--key FILE", "PEM file with the private key.", None),
    tokens: Path | None = option(
        "--tokens FILE", "The tokens that the page accepts: lines of NAME ROLE SHA256.", None
    ),
    host_name: list[str] | None = option(
        "--host-name NAME", "A host name by which browsers reach the page. May be repeated.", None
    ),
    insecure: bool = flag("--insecure", "Listen beyond this machine without TLS and tokens."),
) -> None:
    """Show all flows on a live page in the browser, until Ctrl-C. The page changes nothing.

    Prints one line with its address once it serves. By default it listens on this machine only. An address
    that other machines reach needs --certificate, --key and --tokens (a file like twinlog.auth.tokens.file);
    the page then asks for a token. --insecure needs none of these, for a network you trust. The command
    finds the services as `twinlog status` does.

    Exit codes: 0 stopped; 2 wrong usage, the port is in use, or the package aiohttp is not installed (`pip
    install 'twinlog[ui]'`).
    """
    from twinlog.cli.ui.access import page_certificate, refuse_open_page
    from twinlog.service.access.tokens import TokenFile

    address = _address(listen)
    shown = page_certificate(certificate, key)
    refuse_open_page(address, tls=shown is not None, tokens=tokens is not None, insecure=insecure)
    known = None if tokens is None else TokenFile(str(tokens))
    endpoints, open_to = service_endpoints(call.config, call.endpoint), channels(call.config)
    bound = _bound(address)
    try:
        from twinlog.cli.ui.serving import serve
    except ModuleNotFoundError as error:
        if error.name != "aiohttp":
            raise
        raise ConfigError(
            "the page needs the package aiohttp: pip install 'twinlog[ui]'", key="ui"
        ) from error
    names = frozenset(name.lower() for name in host_name or ())
    with bound:
        call.run(
            serve(
                *(endpoints, open_to, bound, address, shown, known, names),
                same_services=_same_services(call.config, call.endpoint),
                ready=lambda url: typer.echo(f"ready: {url}"),
            )
        )


def _same_services(config: Path | None, endpoints: list[str] | None) -> str:
    """For commands that people copy from the page into a shell somewhere else on this machine."""
    words = [word for endpoint in endpoints or () for word in ("--endpoint", endpoint)]
    return shlex.join([*words, *(() if config is None else ("--config", str(config.resolve())))])


def _address(text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as error:
        raise ConfigError(f"--listen: {error}", key="--listen") from error


def _bound(address: Address) -> socket.socket:
    """Raises ConfigError when the port is in use."""
    try:
        return socket.create_server(
            (address.host.strip("[]"), address.port),
            family=socket.AF_INET6 if ":" in address.host else socket.AF_INET,
        )
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"--listen {address}: {error}: name another port, or 0 for a free one", key="--listen"
        ) from error
