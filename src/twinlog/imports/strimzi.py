"""Converts Strimzi's `KafkaMirrorMaker2` (v1, v1beta2 and older) and `KafkaConnector`, as its operator
interprets them.

The operator creates connectors named `A->B.MirrorSourceConnector` and so on, whose worker stores the
positions of all mirrors of a resource in one topic. What it adds to their configuration is added here as
well, so that a connector means the same whether its resource or Connect's REST API was imported.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence

from twinlog.config.keys.spec import KeyScope
from twinlog.config.keys.table import BY_ANY_NAME
from twinlog.config.values.precedence import Connector
from twinlog.imports.connectors import ImportedConnector, kind_of
from twinlog.imports.documents import Tree, resources
from twinlog.imports.draft import Draft, Report, Setting
from twinlog.imports.references import References
from twinlog.imports.strimzi_security import security_settings

_GROUPS = ("kafka.strimzi.io/", "eventstreams.ibm.com/")
"""Strimzi's operator, and IBM's Event Streams, which is based on it."""
MIRROR_MAKER_2 = "KafkaMirrorMaker2"
CONNECTOR = "KafkaConnector"
_MIRROR_MAKER_1 = "KafkaMirrorMaker"
_CONVERTERS = ("key.converter", "value.converter", "header.converter")
"""The converters of the worker; connectors may have their own."""
_DEFAULT_OFFSETS_TOPIC = "mirrormaker2-cluster-offsets"
_DEFAULT_GROUP = "mirrormaker2-cluster"
"""The operator's topic and the group of its workers if a resource names none (v1beta2)."""

_CONNECTORS = {
    Connector.SOURCE: "sourceConnector",
    Connector.CHECKPOINT: "checkpointConnector",
    Connector.HEARTBEAT: "heartbeatConnector",
}
_PATTERNS = {
    "topicsPattern": "topics",
    "topicsBlacklistPattern": "topics.exclude",
    "topicsExcludePattern": "topics.exclude",
    "groupsPattern": "groups",
    "groupsBlacklistPattern": "groups.exclude",
    "groupsExcludePattern": "groups.exclude",
}
_READ_PATTERNS: Mapping[Connector, tuple[str, ...]] = {
    Connector.SOURCE: ("topics",),
    Connector.CHECKPOINT: ("topics", "groups"),
    Connector.HEARTBEAT: (),
}
_MIRROR_FIELDS = {"source", "sourceCluster", "targetCluster", *_CONNECTORS.values(), *_PATTERNS}
_CLUSTER_FIELDS = {"alias", "bootstrapServers", "tls", "authentication", "config"}
_TARGET_FIELDS = {"groupId", "configStorageTopic", "statusStorageTopic", "offsetStorageTopic"}
_CONNECTOR_FIELDS = {"tasksMax", "config", "pause", "state"}
_CONNECTOR_TEXTS = ("class", "tasksMax", "pause", "state")
_KUBERNETES_PROVIDERS = ("KubernetesSecretConfigProvider", "KubernetesConfigMapConfigProvider")
_ABOUT_PODS = (
    "replicas", "image", "resources", "livenessProbe", "readinessProbe", "jvmOptions", "jmxOptions",
    "logging", "clientRackInitImage", "metricsConfig", "tracing", "template", "affinity", "tolerations",
    "metrics", "build", "plugins",
)  # fmt: skip
_PODS = "pods and metrics: docs/kubernetes.md, docs/metrics.md"
_PODS_OF_THE_CHART = (
    "the chart has values for pods: image.pullSecrets, services.source.resources, affinity, …"
)


def is_strimzi(documents: Sequence[Tree]) -> bool:
    return any(resource.text("apiVersion").startswith(_GROUPS) for resource in resources(documents))


def connectors_of(
    documents: Sequence[Tree],
    draft: Draft,
    references: References,
    *,
    offsets_topic: str,
    version: tuple[int, int] | None,
) -> list[ImportedConnector]:
    """The connectors of all resources; keys of their workers are written to the draft at once."""
    found: list[ImportedConnector] = []
    for resource in resources(documents):
        kind, name = resource.text("kind"), resource.get("metadata").text("name")
        if kind == MIRROR_MAKER_2:
            found += _MirrorMaker2(resource, draft, references, version).connectors()
        elif kind == CONNECTOR:
            connector = _connector(resource, name, draft.report, offsets_topic, version)
            found += [connector] if connector else []
        elif kind == _MIRROR_MAKER_1:
            draft.report.impossible(
                resource.setting,
                "this is MirrorMaker 1: write spec.consumer and spec.producer as its two files and run"
                " `twinlog mirror-maker` (docs/migration/mirrormaker1.md)",
            )
        else:
            draft.report.ignored(resource.setting, f"{kind or 'a document without kind'} {name} is not read")
    return found


def _connector(
    resource: Tree, name: str, report: Report, offsets_topic: str, version: tuple[int, int] | None
) -> ImportedConnector | None:
    resource.require(tables=("spec",))
    spec = resource.get("spec")
    spec.require(texts=_CONNECTOR_TEXTS, tables=("config",))
    kind = kind_of(spec.text("class"))
    if kind is None:
        report.ignored(resource.setting, f"{CONNECTOR} {name} is none of MirrorMaker 2's")
        return None
    return ImportedConnector(
        kind=kind,
        name=name,
        config=_with_tasks(spec, spec.get("config").settings()),
        setting=resource.setting,
        offsets_topic=Setting(value=offsets_topic, place="--offsets-topic") if offsets_topic else None,
        stopped=_stopped(spec),
        mm2_version=version,
    )


def _with_tasks(spec: Tree, config: dict[str, Setting]) -> dict[str, Setting]:
    tasks = spec.get("tasksMax")
    return config | ({"tasks.max": tasks.setting} if tasks.is_there else {})


def _stopped(spec: Tree) -> Setting | None:
    if spec.text("state") in ("paused", "stopped"):
        return spec.get("state").setting
    return spec.get("pause").setting if spec.text("pause") == "true" else None


class _MirrorMaker2:
    """One resource."""

    def __init__(
        self, resource: Tree, draft: Draft, references: References, version: tuple[int, int] | None
    ) -> None:
        resource.require(tables=("spec",))
        self._spec = resource.get("spec")
        self._spec.require(
            texts=("version", "connectCluster"), tables=("target",), lists=("clusters", "mirrors")
        )
        self._draft, self._references, self._report = draft, references, draft.report
        self._version = version or _version(self._spec.text("version"))
        clusters = self._spec.get("clusters").items
        for cluster in (*clusters, self._spec.get("target")):
            self._read_providers(cluster)
        self._clusters: Mapping[str, Tree] = {cluster.text("alias"): cluster for cluster in clusters}

    def connectors(self) -> list[ImportedConnector]:
        self._say_what_is_left_out()
        mirrors = self._spec.get("mirrors").items
        if not mirrors:
            self._report.impossible(self._spec.setting, "there is nothing in spec.mirrors")
        return [connector for mirror in mirrors for connector in self._of_mirror(mirror)]

    def _read_providers(self, cluster: Tree) -> None:
        """The providers of Secrets and ConfigMaps may have any name."""
        _require_cluster(cluster)
        for key, tree in cluster.get("config").fields.items():
            name = key.removeprefix("config.providers.").removesuffix(".class")
            if f"config.providers.{name}.class" == key and (tree.scalar or "").endswith(
                _KUBERNETES_PROVIDERS
            ):
                self._references.kubernetes.add(name)

    def _of_mirror(self, mirror: Tree) -> Iterator[ImportedConnector]:
        mirror.require(
            texts=("sourceCluster", "targetCluster", *_PATTERNS), tables=("source", *_CONNECTORS.values())
        )
        _require_cluster(mirror.get("source"))
        source = self._cluster(mirror, "source", "sourceCluster")
        target = self._spec.get("target")
        is_v1 = target.is_there
        if not is_v1:
            target = self._cluster(mirror, "target", "targetCluster")
        if not source.is_there or not target.is_there:
            field = "targetCluster" if source.is_there else "sourceCluster"
            told = f"{mirror.text(field)!r} is none of the clusters here: {', '.join(self._clusters)}"
            self._report.impossible(mirror.get(field).setting, told)
            return
        worker = self._spec.text("connectCluster")
        if worker and not is_v1 and target.text("alias") != worker:
            self._report.impossible(
                mirror.setting,
                f"its target {target.text('alias')} is not {worker} (connectCluster), where a worker writes"
                " and keeps positions: the operator refuses it, and older ones copied to another cluster than"
                " it says",
            )
            return
        if _CONNECTORS[Connector.CHECKPOINT] not in mirror.fields:
            for name, key in _PATTERNS.items():
                if key.startswith("groups") and mirror.get(name).is_there:
                    why = "without checkpointConnector the operator copies no groups"
                    self._report.ignored(mirror.get(name).setting, why)
        for name in mirror.fields.keys() - _MIRROR_FIELDS:
            self._report.ignored(mirror.get(name).setting, "not a field of a mirror; the operator ignores it")
        self._draft.add_cluster(source.text("alias"))
        offsets_topic = self._worker(target)
        converters = target.get("config").settings()
        of_worker = {key: converters[key] for key in _CONVERTERS if key in converters}
        of_clusters = {
            **self._of_cluster(target, "target.cluster."),
            **self._of_cluster(source, "source.cluster."),
        }
        for kind, field in _CONNECTORS.items():
            spec = mirror.get(field)
            if field not in mirror.fields:
                continue
            spec.require(texts=_CONNECTOR_TEXTS, tables=("config",))
            for name in spec.fields.keys() - _CONNECTOR_FIELDS:
                self._report.ignored(spec.get(name).setting, "about the operator's handling of a connector")
            config = spec.get("config").settings()
            # The operator of v1 lets a connector's config win, earlier ones the clusters' settings.
            top, base = (config, of_clusters) if is_v1 else (of_clusters, config)
            own = _with_tasks(spec, {**of_worker, **base, **top})
            own |= {
                key: mirror.get(name).setting
                for name, key in _PATTERNS.items()
                if mirror.get(name).is_there and key.partition(".")[0] in _READ_PATTERNS[kind]
            }
            yield ImportedConnector(
                kind=kind,
                name=f"{source.text('alias')}->{target.text('alias')}.{kind}",
                config=own,
                setting=spec.setting if spec.line else mirror.setting,
                offsets_topic=offsets_topic,
                stopped=_stopped(spec),
                mm2_version=self._version,
            )

    def _cluster(self, mirror: Tree, embedded: str, alias_field: str) -> Tree:
        """In v1 the cluster is nested, in v1beta2 it is named."""
        inside = mirror.get(embedded)
        return inside if inside.is_there else self._clusters.get(mirror.text(alias_field), inside)

    def _of_cluster(self, cluster: Tree, prefix: str) -> dict[str, Setting]:
        for name in cluster.fields.keys() - _CLUSTER_FIELDS - _TARGET_FIELDS:
            self._report.ignored(
                cluster.get(name).setting, "not a field of a cluster; the operator ignores it (misplaced?)"
            )
        alias = cluster.text("alias")
        found = {f"{prefix}alias": cluster.get("alias").setting}
        found[f"{prefix}bootstrap.servers"] = cluster.get("bootstrapServers").setting
        for key, setting in security_settings(cluster, alias, self._references).items():
            found[f"{prefix}{key}"] = setting
        of_worker = prefix == "target.cluster."
        for key, setting in cluster.get("config").settings().items():
            if key.startswith("config.providers"):
                self._draft.set_provider(key, setting)
            elif not of_worker or not _is_of_worker(key):
                found[f"{prefix}{key}"] = setting
        return found

    def _worker(self, target: Tree) -> Setting:
        """Write the settings of the worker, which connects to the target. Returns where it stores
        positions."""
        alias, config = target.text("alias"), target.get("config").settings()
        named = target.get("offsetStorageTopic")
        topic = named.setting if named.is_there else config.get("offset.storage.topic")
        group = target.get("groupId") if target.get("groupId").is_there else target.get("config", "group.id")
        self._report.to_do(
            group.setting if group.is_there else target.setting,
            "do not start Twinlog beside MirrorMaker 2; this ends with 0 once that has stopped:"
            f" `twinlog adopt FILE --connect-group {shlex.quote(group.scalar or _DEFAULT_GROUP)}`",
        )
        for name in ("configStorageTopic", "statusStorageTopic"):
            if target.get(name).is_there:
                self._report.ignored(target.get(name).setting, "there are no Connect workers")
        for key, found in config.items():
            if key == "offset.storage.topic" or key in _CONVERTERS or not _is_of_worker(key):
                continue
            setting = self._references.translated(found, f"{alias}.{key}")
            spec = BY_ANY_NAME.get(key)
            if key.startswith(("consumer.", "admin.")):
                self._report.ignored(setting, "these clients of a worker read Connect's own topics only")
            elif spec is not None and spec.no_effect:
                self._report.ignored(setting, spec.no_effect)
            elif key.startswith(("config.storage.", "status.storage.")):
                self._report.ignored(setting, "there are no such topics of Connect")
            else:
                self._draft.set_cluster(alias, key, setting)
        return topic or target.setting.at(_DEFAULT_OFFSETS_TOPIC)

    def _say_what_is_left_out(self) -> None:
        for name, tree in self._spec.fields.items():
            if name in _ABOUT_PODS:
                self._report.ignored(tree.setting, _PODS_OF_THE_CHART if self._references.by_chart else _PODS)
            elif name == "rack":
                self._report.to_do(
                    tree.setting, "write A.consumer.client.rack to read from the nearest replica"
                )
            elif name == "externalConfiguration":
                self._report.to_do(
                    tree.setting,
                    self._references.of_the_chart
                    if self._references.by_chart
                    else "mount the same files and variables for Twinlog's services",
                )
            elif name not in ("version", "connectCluster", "clusters", "target", "mirrors"):
                self._report.ignored(tree.setting, "not a field that is read")


def _require_cluster(cluster: Tree) -> None:
    cluster.require(
        texts=("alias", "bootstrapServers", *_TARGET_FIELDS), tables=("tls", "authentication", "config")
    )


def _is_of_worker(key: str) -> bool:
    spec = BY_ANY_NAME.get(key)
    return key.startswith(
        ("producer.", "consumer.", "admin.", "offset.storage.", "config.storage.", "status.storage.")
    ) or (
        key in _CONVERTERS or (spec is not None and spec.scope in (KeyScope.TARGET, KeyScope.TARGET_OR_TOP))
    )


def _version(text: str) -> tuple[int, int] | None:
    """`3.9.1` as (3, 9)."""
    major, _, rest = text.partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None
