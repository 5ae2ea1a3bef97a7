"""The properties file of an import, while it is created."""

import re
from dataclasses import dataclass
from enum import StrEnum

from twinlog.config.keys.client import LOGIN_HANDLERS, is_secret
from twinlog.properties_text import render_properties

# The report about each setting of an imported file.


class Fate(StrEnum):
    MAPPED = "mapped"
    """It is in the properties file, with the same meaning."""
    IGNORED = "ignored"
    """It is left out, without any loss."""
    TO_DO = "to do"
    """The file needs an action before it is used: a secret to mount, a topic to name."""
    IMPOSSIBLE = "impossible"
    """Twinlog does not have it. If records would differ, the flow is switched off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value of an imported file, with its place."""

    value: str
    place: str
    """A path such as `spec.mirrors[0].sourceConnector.config.tasks.max`."""
    line: int = 0
    """1-based; 0 = no particular line."""

    def at(self, value: str) -> "Setting":
        return Setting(value=value, place=self.place, line=self.line)

    def __repr__(self) -> str:
        # The value may be a secret.
        return f"Setting({self.place}:{self.line})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the report. It never contains a value."""

    fate: Fate
    place: str
    line: int
    becomes: str
    """The key in the properties file; empty = none."""
    text: str


class Report:
    """Collects lines in order, each only once."""

    def __init__(self) -> None:
        self._lines: dict[Line, None] = {}

    @property
    def lines(self) -> tuple[Line, ...]:
        return tuple(self._lines)

    def mapped(self, setting: Setting, becomes: str, text: str = "") -> None:
        self._add(Fate.MAPPED, setting, becomes, text)

    def ignored(self, setting: Setting, text: str) -> None:
        self._add(Fate.IGNORED, setting, "", text)

    def to_do(self, setting: Setting, text: str, *, becomes: str = "") -> None:
        self._add(Fate.TO_DO, setting, becomes, text)

    def impossible(self, setting: Setting, text: str) -> None:
        self._add(Fate.IMPOSSIBLE, setting, "", text)

    def _add(self, fate: Fate, setting: Setting, becomes: str, text: str) -> None:
        found = Line(
            fate=fate, place=setting.place or "the file", line=setting.line, becomes=becomes, text=text
        )
        self._lines[found] = None


_PROVIDERS = "org.apache.kafka.common.config.provider"
_SECRET_OPTION = re.compile(r"(password|passphrase|secret|token|assertion|key)[\w.]*\s*=", re.IGNORECASE)
_LOGIN_HANDLER = "sasl.login.callback.handler.class"
_KNOWN_LOGINS = (*LOGIN_HANDLERS, "$DefaultLoginCallbackHandler")
_INTERCEPTORS = "interceptor.classes"
_WATCHING = (
    "MonitoringConsumerInterceptor",
    "MonitoringProducerInterceptor",
    "ConsumerTimestampsInterceptor",
)
"""Confluent's interceptors: they count records or send their times elsewhere, and do not change them."""
SECRETS = "secrets"
"""The provider for former Kubernetes Secrets: a directory with one directory for each Secret."""

_PROVIDER_CLASSES = {
    SECRETS: f"{_PROVIDERS}.DirectoryConfigProvider",
    "directory": f"{_PROVIDERS}.DirectoryConfigProvider",
    "dir": f"{_PROVIDERS}.DirectoryConfigProvider",
    "file": f"{_PROVIDERS}.FileConfigProvider",
    "env": f"{_PROVIDERS}.EnvVarConfigProvider",
}


class Draft:
    """The keys of the file with their values, and the report with their origins."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self._top: dict[str, str] = {}
        self._clusters: dict[str, dict[str, str]] = {}
        self._flows: dict[str, dict[str, str]] = {}
        self._providers: dict[str, str] = {}
        self._provider_params: dict[str, dict[str, str]] = {}

    def use_provider(self, name: str) -> bool:
        """Add a standard provider of Kafka to `config.providers`; False when its class is unknown."""
        if name in _PROVIDER_CLASSES:
            self._providers[name] = _PROVIDER_CLASSES[name]
        return name in _PROVIDER_CLASSES

    def set_provider(self, key: str, setting: Setting) -> None:
        """`config.providers[.<name>.…]` as in the imported file."""
        name, _, rest = key.removeprefix("config.providers").removeprefix(".").partition(".")
        if not rest:
            return
        if rest == "class" and setting.value.startswith("io.strimzi."):
            self.report.ignored(setting, "what it would read is mounted as files, see the references")
            return
        if rest == "class":
            self._providers[name] = setting.value
        else:
            self._provider_params.setdefault(name, {})[key] = setting.value
        self.report.mapped(setting, key)

    def set_top(self, key: str, value: str) -> None:
        self._top[key] = value

    def add_cluster(self, alias: str) -> None:
        self._clusters.setdefault(alias, {})

    def set_cluster(self, alias: str, key: str, setting: Setting) -> bool:
        """`A.<key>`. False when the cluster already has another value."""
        if self._only_watches(setting, key):
            return True
        values = self._clusters.setdefault(alias, {})
        if values.setdefault(key, setting.value) != setting.value:
            return False
        self._mapped(setting, f"{alias}.{key}", key)
        return True

    def set_flow(self, flow: str, key: str, setting: Setting, text: str = "") -> bool:
        """`A->B.<key>`. False when the flow already has another value."""
        if self._only_watches(setting, key):
            return True
        values = self._flows.setdefault(flow, {})
        if values.setdefault(key, setting.value) != setting.value:
            return False
        self._mapped(setting, f"{flow}.{key}", key, text)
        return True

    def _only_watches(self, setting: Setting, key: str) -> bool:
        classes = [each.strip() for each in setting.value.split(",") if each.strip()]
        if not key.endswith(_INTERCEPTORS) or not all(each.endswith(_WATCHING) for each in classes):
            return False
        self.report.ignored(setting, "it tells Confluent's tools of records; for metrics see docs/metrics.md")
        return True

    def flow_has(self, flow: str, key: str) -> bool:
        return key in self._flows.get(flow, {})

    def flow_value(self, flow: str, key: str) -> str:
        """Empty if there is none."""
        return self._flows.get(flow, {}).get(key, "")

    def decide_flow(self, flow: str, key: str, value: str) -> None:
        """Set a derived value, whatever was there."""
        self._flows.setdefault(flow, {})[key] = value

    def _mapped(self, setting: Setting, becomes: str, key: str, text: str = "") -> None:
        if is_secret(key) and "${" not in setting.value and _shows_secret(key, setting.value):
            self.report.to_do(
                setting,
                "a secret in clear text: move it to a config provider, or keep the file private",
                becomes=becomes,
            )
        elif key.endswith(_LOGIN_HANDLER) and not setting.value.strip().endswith(_KNOWN_LOGINS):
            self.report.to_do(
                setting,
                "a Java login class that Twinlog does not support: configure another login (docs/logins.md)",
                becomes=becomes,
            )
        else:
            self.report.mapped(setting, becomes, text)

    def render(self, *, origin: str) -> str:
        """The file; open tasks are comments at its head."""
        parts = [f"# Imported from {_comment(origin)}. See docs/migration/ before it is started.\n"]
        parts += [
            f"# {line.fate}: {_comment(line.becomes or line.place)}: {_comment(line.text)}\n"
            for line in self.report.lines
            if line.fate in (Fate.TO_DO, Fate.IMPOSSIBLE)
        ]
        parts.append("\n" + render_properties({"clusters": ", ".join(self._clusters)}))
        if self._providers:
            providers = {"config.providers": ", ".join(self._providers)}
            providers |= {f"config.providers.{name}.class": it for name, it in self._providers.items()}
            for name in self._providers:
                providers |= self._provider_params.get(name, {})
            parts.append(render_properties(providers))
        parts.append(render_properties(self._top))
        for alias, values in self._clusters.items():
            parts.append("\n" + render_properties({f"{alias}.{key}": it for key, it in values.items()}))
        for flow, values in self._flows.items():
            parts.append("\n" + render_properties({f"{flow}.{key}": it for key, it in values.items()}))
        return "".join(parts)


def _shows_secret(key: str, value: str) -> bool:
    """In a JAAS entry only some options are secrets, and an entry may have none."""
    return not key.endswith("sasl.jaas.config") or _SECRET_OPTION.search(value) is not None


def _comment(text: str) -> str:
    """One line that is allowed in a properties file."""
    return " ".join(text.split()).encode("ascii", "replace").decode("ascii")
