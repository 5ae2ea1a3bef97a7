"""Loads a properties file into a Configuration; used by the services, the command line and the tests."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from twinlog import properties
from twinlog.config.check import check_keys
from twinlog.config.client_settings import ClientBuilder, ClusterConfig
from twinlog.config.flow.flows import flow_config
from twinlog.config.keys.client import is_secret
from twinlog.config.keys.spec import Service, split_list
from twinlog.config.keys.table import BY_NAME, SPARK_CONF_PREFIX
from twinlog.config.security import security_settings
from twinlog.config.settings import (
    Address,
    Configuration,
    RuntimeSettings,
    ServiceEndpoints,
    SparkSettings,
)
from twinlog.config.values import precedence as precedence
from twinlog.config.values.live import require_literals
from twinlog.config.values.precedence import Connector, Settings
from twinlog.config.values.providers import FileSystem, LocalFileSystem, Resolver, configured_resolver
from twinlog.config.values.reader import ConfigFindings, SettingsReader
from twinlog.errors import ConfigError
from twinlog.model import ClusterAlias, Flow
from twinlog.properties import Property

# Values that Kafka accepts and nobody intends: with a comment, a blank or quotes, or an expression split at
# a comma.

_PATTERN_LISTS = frozenset(
    {
        *("topics", "topics.exclude", "groups", "groups.exclude", "config.properties.exclude"),
        "twinlog.sync.topic.configs.include",
    }
)
_OF_ANOTHER_REPLICATOR = re.compile(rb"\A\s*[\[{]|^(?:apiVersion|kind)\s*:\s", re.MULTILINE)
"""A resource of Strimzi, or the answer of Connect's REST API."""
_RAW_SWITCHES = frozenset(("enabled", "emit.heartbeats.enabled"))
"""Read a second time, untrimmed, when MM2 decides which flows exist."""
_QUOTES = ('"', "'")
"""No topic has one in its name."""


def check_values(raw: Settings, findings: ConfigFindings) -> None:
    for key, prop in raw.items():
        if is_secret(key):
            continue
        name = key.partition("->")[2].partition(".")[2] or key
        if " #" in prop.value:
            text = "' #…' is part of the value: a comment has to be on a line of its own"
            findings.warning(key, text, line=prop.line)
        if name in _RAW_SWITCHES and prop.value != prop.value.strip():
            text = "MM2 reads it as false, because of the blank after the value"
            findings.warning(key, text, line=prop.line)
        if name in _PATTERN_LISTS:
            for element in split_list(prop.value):
                if element.count("{") != element.count("}") or element.count("[") != element.count("]"):
                    text = f"{element!r} looks like half of an expression: a comma always separates elements"
                    findings.warning(key, text, line=prop.line)
                if element[:1] in _QUOTES or element[-1:] in _QUOTES:
                    text = f"the quotes are part of {element}: write it without"
                    findings.warning(key, text, line=prop.line, is_mistake="topics" in name)


_SPARK_AUTHENTICATE = "spark.authenticate"
_SPARK_SECRETS = (f"{_SPARK_AUTHENTICATE}.secret", f"{_SPARK_AUTHENTICATE}.secret.file")
_SPARK_CONNECT = "sc://"
_NO_CONNECT = "Spark Connect cannot run the copying tasks; name a master such as spark://HOST:7077"
_REFUSED_CONF: Mapping[str, tuple[str | None, str]] = {
    "spark.master": (None, "set twinlog.spark.master instead"),
    "spark.remote": (None, _NO_CONNECT),
    "spark.api.mode": ("connect", _NO_CONNECT),
    "spark.speculation": ("true", "a second copy of a task would be a second writer of its partitions"),
}
"""By name: the value that is refused, None = every one, and why."""
_STANDALONE = "spark://"
"""Other cluster managers (YARN, Kubernetes) distribute the secret themselves."""


def load(
    path: Path,
    *,
    environ: Mapping[str, str],
    only_flows: Collection[Flow] | None = None,
    only_targets: Collection[ClusterAlias] | None = None,
    overrides: Mapping[str, str] | None = None,
    strict: bool = False,
    files: FileSystem | None = None,
) -> Configuration:
    """Read an mm2.properties file. Blocks while it reads the file and what its providers refer to.

    `only_flows` selects flows, `only_targets` (MM2's `--clusters`) the flows into these clusters. `overrides`
    are properties that take precedence over the file. `strict` turns unknown keys into errors. Raises
    ConfigError with all problems, one per line: file, line, key, expected, found.
    """
    reader = files or LocalFileSystem()
    try:
        content = reader.read_bytes(str(path))
    except OSError as error:
        missing = {"missing": str(path)} if isinstance(error, FileNotFoundError) else {}
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror or error}", metadata={"file": str(path), **missing}
        ) from error
    if _OF_ANOTHER_REPLICATOR.search(content):
        raise ConfigError(
            f"{path}: this is YAML or JSON, not a properties file: `twinlog convert` makes one of it",
            metadata={"file": str(path), "convert": str(path)},
        )
    return _build(
        properties.parse(content, file=str(path)),
        file=str(path),
        environ=environ,
        only_flows=only_flows,
        only_targets=only_targets,
        overrides=overrides,
        strict=strict,
        files=reader,
    )


def _build(
    parsed: properties.Properties,
    *,
    file: str,
    environ: Mapping[str, str],
    only_flows: Collection[Flow] | None,
    only_targets: Collection[ClusterAlias] | None,
    overrides: Mapping[str, str] | None,
    strict: bool,
    files: FileSystem,
) -> Configuration:
    """Create a Configuration from parsed properties; raises as `load` does."""
    findings = ConfigFindings(file=file)
    for earlier in parsed.overridden:
        later = parsed.entries[earlier.key]
        findings.warning(earlier.key, f"is written again in line {later.line}, which wins", line=earlier.line)
    raw = {**parsed.entries, **{k: Property(key=k, value=v) for k, v in (overrides or {}).items()}}
    resolver = configured_resolver(raw, environ=environ, files=files, findings=findings)
    top = SettingsReader(raw, resolve=resolver.resolve, findings=findings)

    clusters = _clusters(top, findings)
    check_keys(raw, clusters, findings=findings, strict=strict)
    check_values(raw, findings)
    if not clusters:
        findings.raise_problems()

    running = _running_flows(raw, clusters, resolver)
    selected = _selected_flows(running, clusters, only_flows=only_flows, only_targets=only_targets)
    if not selected:
        findings.problem("clusters", "No source->target replication flows.")
        findings.raise_problems()
    internal = precedence.internal_topics(raw, clusters)
    flows = tuple(
        flow_config(raw, flow, resolver=resolver, findings=findings, internal_topics=internal)
        for flow in selected
    )
    whole_file = only_flows is None and only_targets is None
    used = {alias for flow in selected for alias in (flow.source, flow.target)}
    builder = ClientBuilder(resolver, findings)
    configs = {alias: builder.of_cluster(raw, alias) for alias in clusters if whole_file or alias in used}
    _warn_same_brokers(flows_of=selected, clusters=configs, findings=findings)
    configuration = Configuration(
        file=file,
        clusters=configs,
        flows=flows,
        endpoints={service: _endpoints(top, service) for service in Service},
        spark=_spark(raw, top, resolver, findings),
        runtime=RuntimeSettings(**top.declared(RuntimeSettings)),
        security=security_settings(top, findings),
        notices=findings.notices,
        base=_Base(
            raw=raw,
            resolver=resolver,
            running=running,
            rebuild=partial(
                _build,
                parsed,
                file=file,
                environ=environ,
                only_flows=only_flows,
                only_targets=only_targets,
                strict=strict,
                files=files,
            ),
            overrides=dict(overrides or {}),
        ),
    )
    findings.raise_problems()
    return configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    """`ConfigurationBase`."""

    raw: Mapping[str, Property]
    resolver: Resolver
    running: Collection[Flow]
    rebuild: Callable[..., Configuration]
    overrides: Mapping[str, str]

    def with_overrides(self, overrides: Mapping[str, str]) -> Configuration:
        require_literals(overrides)
        return self.rebuild(overrides={**self.overrides, **overrides})

    def whole_file(self) -> Configuration:
        return self.rebuild(overrides=self.overrides, only_flows=None, only_targets=None)

    def other_flow(self, flow: Flow) -> Configuration | None:
        if flow not in self.running:
            return None
        return self.rebuild(overrides=self.overrides, only_flows=(flow,), only_targets=None)

    def written_values(self, flow: Flow, keys: Collection[str]) -> Mapping[str, str]:
        written = precedence.connector_properties(self.raw, flow, Connector.SOURCE)
        found = {
            key: next((written[name] for name in (key, *BY_NAME[key].aliases) if name in written), None)
            for key in keys
        }
        return {
            key: self.resolver.resolve(prop).value.strip() for key, prop in found.items() if prop is not None
        }

    def flow_values(self, flow: Flow, keys: Collection[str]) -> Mapping[str, str]:
        defaults = {key: spec.default for key in keys if (spec := BY_NAME[key]).default is not None}
        return {**defaults, **self.written_values(flow, keys)}


def _clusters(top: SettingsReader, findings: ConfigFindings) -> tuple[ClusterAlias, ...]:
    prop = top.property("clusters") or Property(key="clusters", value="")
    if not prop.value.strip():
        findings.problem("clusters", "missing: the aliases of the clusters, as A, B", line=prop.line)
    aliases = top.elements("clusters")
    for alias in aliases:
        if "->" in alias:
            findings.problem("clusters", f"{alias!r} is not an alias: it contains an arrow", line=prop.line)
        elif alias.split() != [alias]:
            text = f"{alias!r} is not an alias: write commas between aliases, as {', '.join(alias.split())}"
            findings.problem("clusters", text, line=prop.line)
            # Further problems would only follow from this one.
            return ()
    return aliases


def _running_flows(
    raw: Mapping[str, Property], clusters: Collection[ClusterAlias], resolver: Resolver
) -> tuple[Flow, ...]:
    switches = {key: resolver.resolve(prop).value for key, prop in raw.items() if key.endswith("enabled")}
    return tuple(precedence.herder_flows(switches, clusters))


def _selected_flows(
    running: Collection[Flow],
    clusters: Collection[ClusterAlias],
    *,
    only_flows: Collection[Flow] | None,
    only_targets: Collection[ClusterAlias] | None,
) -> tuple[Flow, ...]:
    for alias in only_targets or ():
        if alias not in clusters:
            raise ConfigError(f"there is no cluster {alias!r}; clusters: {', '.join(clusters)}")
    for flow in only_flows or ():
        if flow not in running:
            known = ", ".join(str(candidate) for candidate in running) or "none"
            raise ConfigError(
                f"there is no flow {flow}, or it is not enabled; flows that run: {known}",
                metadata={"flow": str(flow)},
            )
    return tuple(
        flow
        for flow in running
        if (only_flows is None or flow in only_flows)
        and (only_targets is None or flow.target in only_targets)
    )


def _warn_same_brokers(
    *, flows_of: Collection[Flow], clusters: Mapping[ClusterAlias, ClusterConfig], findings: ConfigFindings
) -> None:
    for flow in flows_of:
        source, target = clusters[flow.source].bootstrap_servers, clusters[flow.target].bootstrap_servers
        if source and set(source) == set(target):
            findings.warning(
                f"{flow.target}.bootstrap.servers",
                f"the same brokers as {flow.source}: a cluster is never replicated into itself",
            )


def _endpoints(top: SettingsReader, service: Service) -> ServiceEndpoints:
    listen = top.text(f"twinlog.{service}.listen")
    endpoint = top.optional_text(f"twinlog.{service}.endpoint")
    metrics = top.optional_text(f"twinlog.{service}.metrics.listen")
    metrics_is_default = top.property(f"twinlog.{service}.metrics.listen") is None
    metrics_listen = Address.parse(metrics) if metrics else None
    if metrics_listen is not None and metrics_listen.excludes(Address.parse(listen)):
        if not metrics_is_default:
            raise same_address(
                f"twinlog.{service}.metrics.listen", f"twinlog.{service}.listen", metrics_listen
            )
        metrics_listen = Address(host=metrics_listen.host, port=0)
    return ServiceEndpoints(
        listen=Address.parse(listen),
        listen_is_default=top.property(f"twinlog.{service}.listen") is None,
        endpoint=Address.parse(endpoint) if endpoint else Address.parse(listen).dialled_from_here(),
        metrics_listen=metrics_listen,
        metrics_is_default=metrics_is_default,
    )


def same_address(key: str, other: str, address: Address) -> ConfigError:
    """Two keys with the same address on one machine."""
    return ConfigError(
        f"{key}: {address} is that of {other}, and only one server can use a port: choose another port for"
        " one"
        " of them (0 takes a free one)",
        reason="ADDRESS_IN_USE",
        metadata={"key": key, "address": str(address)},
    )


def _spark(
    raw: Mapping[str, Property], top: SettingsReader, resolver: Resolver, findings: ConfigFindings
) -> SparkSettings:
    endpoint = top.optional_text("twinlog.source.worker.endpoint")
    listen = top.optional_text("twinlog.source.worker.listen")
    own_port = Address.parse(top.text("twinlog.source.listen")).port
    if endpoint and not listen and Address.parse(endpoint).port == own_port != 0:
        # Other services and commands read the same file and have no tasks, so only the source service refuses
        # it.
        findings.warning(
            "twinlog.source.worker.endpoint",
            f"port {own_port} is that of twinlog.source.listen, and tasks have a port of their own: the"
            " source service does not start; choose another one, for example 17405",
        )
    written = precedence.strip_prefix(raw, SPARK_CONF_PREFIX)
    master = top.text("twinlog.spark.master")
    conf = {name: resolver.resolve(prop).value.strip() for name, prop in written.items()}
    _check_spark(master, conf, findings)
    _check_authentication(master, conf, findings)
    return SparkSettings(
        master=master,
        conf=conf,
        worker_endpoint=Address.parse(endpoint) if endpoint else None,
        worker_listen=Address.parse(listen) if listen else None,
    )


def _check_spark(master: str, conf: Mapping[str, str], findings: ConfigFindings) -> None:
    """Refuse what cannot run the copying tasks, or would run one of them twice. Values may have tokens."""
    if master.startswith(_SPARK_CONNECT):
        findings.problem("twinlog.spark.master", _NO_CONNECT)
    for name, (refused, why) in _REFUSED_CONF.items():
        value = conf.get(name)
        if value is not None and refused in (None, value.lower()):
            findings.problem(
                f"{SPARK_CONF_PREFIX}{name}", f"cannot be set{f' to {refused}' if refused else ''}: {why}"
            )


def _check_authentication(master: str, conf: Mapping[str, str], findings: ConfigFindings) -> None:
    """Without authentication, Spark runs whatever anybody sends to it."""
    key = f"{SPARK_CONF_PREFIX}{_SPARK_AUTHENTICATE}"
    if conf.get(_SPARK_AUTHENTICATE) == "false":
        findings.warning(
            key,
            "is false: everybody who reaches the ports of Spark's driver and executors can run code in them",
        )
    elif master.startswith(_STANDALONE) and not any(secret in conf for secret in _SPARK_SECRETS):
        findings.problem(
            f"{key}.secret",
            f"missing: the secret of the cluster at {master}, the same as its master and workers have"
            f" (see docs/spark.md), or {key}=false where nobody else reaches it",
        )
