"""Reads the settings of any OAUTHBEARER login; does not read files."""

import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from twinlog.errors import ConfigError
from twinlog.kafka.security.jaas import LoginEntry
from twinlog.kafka.security.oauth.login import (
    Assertion,
    AwsIdentity,
    Grant,
    OAuthLogin,
    RefreshWindow,
    UnsecuredClaims,
)
from twinlog.kafka.security.refusal import refused

JAAS = "sasl.jaas.config"
URL = "sasl.oauthbearer.token.endpoint.url"
_EXTENSION_NAME, _EXTENSION_VALUE = re.compile(r"[A-Za-z]+"), re.compile(r"[\x21-\x7e \t\r\n]+")
_WINDOW = {
    "sasl.login.refresh.window.factor": ("factor", 0.5, 1.0),
    "sasl.login.refresh.window.jitter": ("jitter", 0.0, 0.25),
    "sasl.login.refresh.min.period.seconds": ("min_period_seconds", 0.0, 900.0),
    "sasl.login.refresh.buffer.seconds": ("buffer_seconds", 0.0, 3600.0),
}
"""With Kafka's ranges."""


class LoginReader:
    """The settings of one client of one cluster. Methods raise ConfigError with cluster, key and remedy for a
    setting that cannot be followed."""

    def __init__(self, properties: Mapping[str, str], entry: LoginEntry | None, alias: str) -> None:
        """`entry` is that of `sasl.jaas.config`; None when it is not set."""
        self.properties = properties
        self.options: Mapping[str, str] = {} if entry is None else entry.options
        """The options of the JAAS entry."""
        self._alias = alias

    def text(self, key: str) -> str:
        return self.properties.get(key, "").strip()

    def either(self, key: str, option: str) -> str:
        return self.text(key) or self.options.get(option, "").strip()

    def boolean(self, key: str) -> bool:
        text = self.text(key).lower()
        if text not in ("", "true", "false"):
            raise self.refused(key, f"{text!r} is neither true nor false")
        return text == "true"

    def _milliseconds(self, key: str, default: int) -> int:
        text = self.text(key)
        if not text:
            return default
        if not text.isdecimal() or int(text) == 0:
            raise self.refused(key, f"{text!r} is not a whole number above 0")
        return int(text)

    def seconds(self, key: str, default: int) -> int:
        text = self.text(key)
        if text and not text.isdecimal():
            raise self.refused(key, f"{text!r} is not a whole number from 0 up")
        return int(text) if text else default

    def number_option(self, name: str, value: str) -> float:
        try:
            return float(value)
        except ValueError:
            raise self.refused(JAAS, f"{name} is not a number") from None

    def one_of(self, key: str, names: tuple[str, ...]) -> str:
        """The class that a key names, without its package."""
        name = class_name(self.text(key))
        if name not in names:
            known = ", ".join(filter(None, names))
            raise self.refused(key, f"{name} is not supported; use {known}, or leave the key out")
        return name

    def check_url(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        if not url:
            what = "oauth.token.endpoint.uri" if key == JAAS else "it"
            raise self.refused(key, f"{what} is missing; set it to the address where tokens are given")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise self.refused(key, "it is not an address with https, http or (for a token's file) file")
        if parts.username or parts.password:
            raise self.refused(key, "it holds a user or password; use the keys of client credentials")

    def file_of(self, url: str) -> str:
        path = unquote(urlsplit(url).path)
        if not path:
            raise self.refused(URL, "it names no file")
        return path

    def refused(self, key: str, problem: str) -> ConfigError:
        return refused(self._alias, key, problem)

    def made(
        self,
        *,
        grant: Grant,
        endpoint: str = "",
        client_id: str = "",
        client_secret: str = "",
        static_token: str = "",
        scope: str = "",
        audience: str = "",
        encode_header: bool = False,
        assertion: Assertion | None = None,
        unsecured: UnsecuredClaims | None = None,
        aws: AwsIdentity | None = None,
    ) -> OAuthLogin:
        first_ms = self._milliseconds("sasl.login.retry.backoff.ms", 100)
        return OAuthLogin(
            grant=grant,
            endpoint=endpoint,
            client_id=client_id,
            client_secret=client_secret,
            static_token=static_token,
            scope=scope,
            audience=audience,
            encode_header=encode_header,
            assertion=assertion,
            unsecured=unsecured,
            aws=aws,
            extensions=self._extensions(),
            tls=tuple((name, value) for name, value in self.options.items() if name.startswith("ssl.")),
            timeout_seconds=max(
                self._milliseconds("sasl.login.connect.timeout.ms", 10_000),
                self._milliseconds("sasl.login.read.timeout.ms", 10_000),
            )
            / 1000,
            backoff_seconds=first_ms / 1000,
            backoff_max_seconds=max(first_ms, self._milliseconds("sasl.login.retry.backoff.max.ms", 10_000))
            / 1000,
            window=self._window(),
        )

    def _extensions(self) -> tuple[tuple[str, str], ...]:
        found: dict[str, str] = {}
        for option, value in self.options.items():
            for prefix in ("extension_", "unsecuredLoginExtension_"):
                name = option.removeprefix(prefix)
                if name == option:
                    continue
                valid = _EXTENSION_NAME.fullmatch(name) and _EXTENSION_VALUE.fullmatch(value)
                if not valid or name == "auth":
                    raise self.refused(JAAS, f"{option} is no SASL extension: letters, and printable text")
                found[name] = value
        return tuple(found.items())

    def _window(self) -> RefreshWindow:
        values: dict[str, float] = {}
        for key, (name, least, most) in _WINDOW.items():
            text = self.text(key)
            if not text:
                continue
            try:
                values[name] = float(text)
            except ValueError:
                values[name] = -1.0
            if not least <= values[name] <= most:
                raise self.refused(key, f"{text!r} is not a number from {least:g} to {most:g}")
        return RefreshWindow(**values)


def class_name(text: str) -> str:
    return text.rpartition(".")[2]
