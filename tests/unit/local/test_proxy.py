"""Proxy variables become what Java understands."""

import pytest

from twinlog.local.download.ivy import proxy_options


@pytest.mark.parametrize(
    ("environment", "options"),
    [
        ({}, []),
        ({"no_proxy": "localhost"}, []),
        ({"HTTPS_PROXY": ""}, []),
        (
            {"HTTPS_PROXY": "http://user:word@proxy.example:3128/"},
            ["-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3128"],
        ),
        (
            {"https_proxy": "proxy.example:3128"},
            ["-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3128"],
        ),
        ({"http_proxy": "http://proxy.example"}, ["-Dhttp.proxyHost=proxy.example", "-Dhttp.proxyPort=80"]),
        (
            {"https_proxy": "http://p:1", "no_proxy": "localhost, .example.org"},
            ["-Dhttps.proxyHost=p", "-Dhttps.proxyPort=1", "-Dhttp.nonProxyHosts=localhost|*.example.org"],
        ),
    ],
)
def test_proxy_options(environment: dict[str, str], options: list[str]) -> None:
    assert proxy_options(environment) == options
