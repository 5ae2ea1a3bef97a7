"""Which hosts can only be reached from this machine."""

import ipaddress


def is_loopback(host: str) -> bool:
    """By an address or `localhost`; any other name may lead anywhere.

    >>> is_loopback("127.0.0.2"), is_loopback("[::1]"), is_loopback("127.evil.example")
    (True, True, False)
    """
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
