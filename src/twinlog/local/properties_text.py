"""Writes Java's formats: properties files, and the JAAS entries inside them. Pure."""

from collections.abc import Mapping


def render_properties(properties: Mapping[str, str]) -> str:
    """As a Java properties file that reads back to the same."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in properties.items())


def plain_login(options: Mapping[str, str]) -> str:
    """A `sasl.jaas.config` for PLAIN: `username` and `password` of one's own, `user_NAME` for each user a
    broker knows.
    """
    return _login("plain.Plain", options)


def scram_login(options: Mapping[str, str]) -> str:
    """A `sasl.jaas.config` for SCRAM: `username` and `password`, nothing on a broker."""
    return _login("scram.Scram", options)


def _login(module: str, options: Mapping[str, str]) -> str:
    words = "".join(f" {key}={_quoted(value)}" for key, value in options.items())
    return f"org.apache.kafka.common.security.{module}LoginModule required{words};"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _escaped(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return "\\" + escaped if escaped.startswith((" ", "#", "!")) else escaped
