"""The usual proxy variables as JVM options, because Java does not read the variables. Pure."""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


def proxy_options(environment: Mapping[str, str]) -> list[str]:
    """Options from http_proxy, https_proxy and no_proxy (either case); none without a proxy.

    A user and password in the variable are not passed on: Java has no such option.
    """
    options = []
    for scheme in ("http", "https"):
        proxy = environment.get(f"{scheme}_proxy") or environment.get(f"{scheme.upper()}_PROXY")
        if not proxy:
            continue
        parts = urlsplit(proxy if "//" in proxy else f"//{proxy}")
        if parts.hostname:
            options.append(f"-D{scheme}.proxyHost={parts.hostname}")
            options.append(f"-D{scheme}.proxyPort={parts.port or _DEFAULT_PORTS.get(parts.scheme, 80)}")
    excepted = environment.get("no_proxy") or environment.get("NO_PROXY")
    if options and excepted:
        hosts = [
            f"*{host}" if host.startswith(".") else host for host in re.split(r"[,\s]+", excepted) if host
        ]
        options.append("-Dhttp.nonProxyHosts=" + "|".join(hosts))
    return options
