"""Converts MM2's three connectors of Kafka Connect into flows of a properties file.

In Connect every connector has its own configuration; in a properties file the three connectors of a flow
share one. A key counts for the connector that reads it. If two connectors of a flow disagree, the source
connector's value is used, and the difference is reported.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from twinlog.config.keys.client import CLUSTER_CLIENT_KEYS, KEYS_BY_CLIENT
from twinlog.config.keys.spec import (
    KeyScope,
    KeySpec,
    Service,
    expected,
    java_boolean,
    parse_value,
    split_list,
)
from twinlog.config.keys.table import BY_ANY_NAME
from twinlog.config.values.precedence import Connector
from twinlog.errors import ConfigError
from twinlog.imports.draft import Draft, Setting
from twinlog.imports.references import References
from twinlog.policy import policy_from_config

# One connector of MirrorMaker 2, from any format.

_PACKAGE = "org.apache.kafka.connect.mirror."


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedConnector:
    kind: Connector
    name: str
    config: Mapping[str, Setting]
    setting: Setting
    """Where it is in the file."""
    offsets_topic: Setting | None = None
    """The `offset.storage.topic` of its worker; None = unknown."""
    stopped: Setting | None = None
    """The setting because of which it counts as paused or stopped."""
    mm2_version: tuple[int, int] | None = None

    @property
    def flow(self) -> tuple[str, str]:
        config = self.config
        source, target = config.get("source.cluster.alias"), config.get("target.cluster.alias")
        return source.value if source else "", target.value if target else "target"


def kind_of(class_name: str) -> Connector | None:
    """Connect accepts the full name, the simple name, and the simple name without `Connector`."""
    simple = class_name.strip().removeprefix(_PACKAGE)
    return next(
        (kind for kind in Connector if simple in (kind.value, kind.value.removesuffix("Connector"))), None
    )


# Defaults of earlier releases of Kafka that decide what is copied.


def write_old_defaults(draft: Draft, flow: str, source: ImportedConnector) -> None:
    """Write those defaults of the connector's release that have changed since."""
    version = source.mm2_version
    if version is None:
        return
    old: Iterable[tuple[str, tuple[int, int], str]] = (
        ("topics.exclude", (4, 0), r".*[\-\.]internal, .*\.replica, __.*"),
        (
            "config.properties.exclude",
            (4, 3),
            (
                r"follower\.replication\.throttled\.replicas, leader\.replication\.throttled\.replicas,"
                r" message\.timestamp\.difference\.max\.ms, message\.timestamp\.type,"
                r" unclean\.leader\.election\.enable, min\.insync\.replicas"
            ),
        ),
    )
    for key, changed, value in old:
        spec = BY_ANY_NAME[key]
        written = any(draft.flow_has(flow, name) for name in (key, *spec.aliases))
        if version < changed and not written:
            shown = ".".join(map(str, version))
            draft.set_flow(flow, key, source.setting.at(value), f"the default of Kafka {shown}")


_READERS: Mapping[Connector, frozenset[Service]] = {
    Connector.SOURCE: frozenset((Service.SOURCE, Service.CONFIGSYNC)),
    Connector.CHECKPOINT: frozenset((Service.CHECKPOINT,)),
    Connector.HEARTBEAT: frozenset((Service.HEARTBEAT,)),
}
_SIDES = ("source", "target")
_CLIENTS = tuple(KEYS_BY_CLIENT)
_CLIENT_PREFIXES = tuple(
    f"{side}{client}." for side in ("", *(f"{side}." for side in _SIDES)) for client in _CLIENTS
)
_POLICY, _SEPARATOR = "replication.policy.class", "replication.policy.separator"
_IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
_OTHER_IDENTITIES = {
    "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy": "Strimzi's policy",
    "com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy": "the policy of Amazon's samples",
}
"""Policies that keep names, from before Kafka 3.0 had one."""
_CONVERTERS = ("key.converter", "value.converter", "header.converter")
_IDENTIFYING = ("name", "connector.class", "source.cluster.alias", "target.cluster.alias")
_FLOW_SCOPES = (KeyScope.FLOW, KeyScope.FLOW_ONLY)


@dataclass(slots=True, kw_only=True)
class ConnectorImport:
    """Writes connectors into a draft."""

    draft: Draft
    references: References
    _refused: set[str] = field(default_factory=set)
    """Flows that would copy something else than before."""

    def add(self, connectors: Sequence[ImportedConnector]) -> None:
        by_flow: dict[str, list[ImportedConnector]] = {}
        for connector in connectors:
            source, target = connector.flow
            if self._are_aliases(connector, source, target):
                by_flow.setdefault(f"{source}->{target}", []).append(connector)
        for name, found in by_flow.items():
            self._add_flow(name, found)
        if by_flow:
            # The dedicated mode writes heartbeats for every pair of clusters, Connect only for configured
            # ones.
            self.draft.set_top("emit.heartbeats.enabled", "false")

    def _are_aliases(self, connector: ImportedConnector, source: str, target: str) -> bool:
        if not source or source == target:
            self.draft.report.impossible(
                connector.setting, "source.cluster.alias is missing, or the same as target.cluster.alias"
            )
            return False
        for alias in (source, target):
            if alias.split() != [alias] or "," in alias or "->" in alias:
                self.draft.report.impossible(connector.setting, f"{alias!r} cannot be an alias in a file")
                return False
        return True

    def _add_flow(self, flow: str, connectors: Sequence[ImportedConnector]) -> None:
        source, target = flow.split("->")
        self.draft.add_cluster(source)
        self.draft.add_cluster(target)
        chosen: dict[Connector, ImportedConnector] = {}
        for connector in connectors:
            earlier = chosen.setdefault(connector.kind, connector)
            if earlier is not connector:
                self._refuse(
                    flow,
                    connector.setting,
                    f"{flow} has two connectors of this kind: {earlier.name} and {connector.name}; import the"
                    " second one into a file of its own, with another alias of the source",
                )
        self.draft.decide_flow(flow, "enabled", "true")
        for kind in Connector:
            if kind in chosen:
                self._add_connector(flow, chosen[kind])
        self._decide(flow, chosen)

    def _add_connector(self, flow: str, connector: ImportedConnector) -> None:
        for key, found in connector.config.items():
            if key in _IDENTIFYING:
                continue
            setting = self.references.translated(found, _becomes(flow, key))
            self._add_key(flow, connector, key, setting)

    def _add_key(self, flow: str, connector: ImportedConnector, key: str, setting: Setting) -> None:
        report = self.draft.report
        if key.startswith("config.providers"):
            self.draft.set_provider(key, setting)
        elif key in _CONVERTERS:
            self._add_converter(flow, connector, key, setting)
        elif key.startswith(("transforms", "predicates")):
            # MirrorMaker 2 would apply those of the other connectors to checkpoints and heartbeats.
            if connector.kind is Connector.SOURCE:
                self._add_transforms(flow, connector, key, setting)
        elif key.startswith(("source.cluster.", "target.cluster.")):
            self._add_cluster_key(flow, key, setting)
        elif key.startswith(_CLIENT_PREFIXES):
            self._put(flow, key, setting)
        elif key.startswith("replication.policy."):
            self._add_policy(flow, connector, key, setting)
        else:
            spec = BY_ANY_NAME.get(key)
            if spec is None or spec.scope not in _FLOW_SCOPES:
                report.ignored(setting, f"MirrorMaker 2 has no key {key}")
            elif spec.no_effect:
                report.ignored(setting, spec.no_effect)
            elif not _READERS[connector.kind].intersection(spec.services) or key == "enabled":
                if key != "enabled":
                    report.ignored(setting, f"{connector.kind} does not read {key}")
            else:
                self._add_known(flow, spec, key, setting)

    def _add_known(self, flow: str, spec: KeySpec, key: str, setting: Setting) -> None:
        if spec.choices and not _is_known(spec, setting):
            self._refuse(flow, setting, f"{key}: expected {expected(spec)}")
            return
        if spec.distinct:
            elements = dict.fromkeys(element for element in split_list(setting.value) if element)
            if len(elements) < len(split_list(setting.value)):
                # Kafka before 4.2 accepts empty elements; there, too, an empty list matches nothing.
                setting = setting.at(", ".join(elements))
        self._put(flow, key, setting)

    def _add_policy(self, flow: str, connector: ImportedConnector, key: str, setting: Setting) -> None:
        spec = BY_ANY_NAME.get(key)
        policy = connector.config.get(_POLICY)
        keeps_names = policy is not None and policy.value.strip() in (_IDENTITY, *_OTHER_IDENTITIES)
        if key == _POLICY and setting.value.strip() in _OTHER_IDENTITIES:
            whose = _OTHER_IDENTITIES[setting.value.strip()]
            setting = setting.at(_IDENTITY)
            self.draft.report.to_do(
                setting,
                f"{whose} becomes Kafka's: copies of topics that end with heartbeats get the alias",
                becomes=f"{flow}.{key}",
            )
        if key == _SEPARATOR and not setting.value.strip():
            if keeps_names:
                self.draft.report.to_do(
                    setting,
                    "an empty separator is left out: internal topics are named with dots, as before Kafka"
                    f" 3.1. If MirrorMaker 2 named its offset syncs without dots, write {flow}.{key}= into"
                    " the file, or groups are translated only from the records on that Twinlog copies",
                    becomes=f"{flow}.{key}",
                )
            else:
                self._refuse(flow, setting, "an empty separator cannot be used, and copies are named by it")
            return
        if spec is not None:
            self._add_known(flow, spec, key, setting)
        else:
            self._put(flow, key, setting)

    def _add_transforms(self, flow: str, connector: ImportedConnector, key: str, setting: Setting) -> None:
        config = {
            name: found.value.strip()
            for name, found in connector.config.items()
            if name.startswith(("transforms", "predicates"))
        }
        try:
            policy_from_config(config)
        except ConfigError as error:
            if key == "transforms":
                self._refuse(flow, setting, str(error).replace("\n", "; "))
        else:
            self._put(flow, key, setting)

    def _add_converter(self, flow: str, connector: ImportedConnector, key: str, setting: Setting) -> None:
        simple = setting.value.strip().rpartition(".")[2]
        if simple == "ByteArrayConverter":
            self.draft.report.ignored(setting, "records are copied byte for byte, nothing is converted")
        elif (key, simple) == (
            "header.converter",
            "SimpleHeaderConverter",
        ) and "transforms" in connector.config:
            self.draft.report.ignored(setting, "headers stay bytes, also beside one that a transform inserts")
        elif connector.kind is Connector.SOURCE:
            self._refuse(
                flow,
                setting,
                "this converter changes records; Twinlog copies byte for byte",
            )

    def _add_cluster_key(self, flow: str, key: str, setting: Setting) -> None:
        side, _, name = key.partition(".cluster.")
        alias = flow.split("->")[_SIDES.index(side)]
        if name not in CLUSTER_CLIENT_KEYS:
            self.draft.report.ignored(setting, f"no client of MirrorMaker 2 reads {key} either")
        elif not self.draft.set_cluster(alias, name, setting):
            self._put(flow, key, setting)

    def _put(self, flow: str, key: str, setting: Setting) -> None:
        if not self.draft.set_flow(flow, key, setting):
            self.draft.report.to_do(
                setting,
                f"another connector of {flow} has another value of {key}, which the flow uses",
                becomes=f"{flow}.{key}",
            )

    def _decide(self, flow: str, chosen: Mapping[Connector, ImportedConnector]) -> None:
        """What follows from which connectors exist, and whether they run."""
        report = self.draft.report
        source, checkpoint = chosen.get(Connector.SOURCE), chosen.get(Connector.CHECKPOINT)
        if source is not None:
            self._add_progress(flow, source)
            write_old_defaults(self.draft, flow, source)
        for kind, connector in chosen.items():
            off = _switched_off(connector)
            if off is not None:
                key = _SWITCHES[kind]
                self.draft.decide_flow(flow, key, "false")
                report.mapped(off, f"{flow}.{key}", f"{connector.name} does not run, so this is off")
        if source is None and checkpoint is not None:
            report.to_do(
                checkpoint.setting,
                f"nothing copies the records of {flow}: run only `twinlog run FILE --service checkpoint`",
                becomes=f"{flow}.enabled",
            )
        if source is None and checkpoint is None:
            self.draft.decide_flow(flow, "enabled", "false")
        if source is not None and checkpoint is None:
            self.draft.decide_flow(flow, "emit.checkpoints.enabled", "false")
        if checkpoint is not None:
            self._switch_group_sync(flow, checkpoint)
        heartbeat = chosen.get(Connector.HEARTBEAT)
        if heartbeat is not None and not self.draft.flow_has(flow, "emit.heartbeats.enabled"):
            self.draft.decide_flow(flow, "emit.heartbeats.enabled", "true")
        if heartbeat is None and source is not None:
            why = "there is no heartbeat connector: `true` writes heartbeats, which measure the delay"
            report.mapped(source.setting, "emit.heartbeats.enabled", why)
        if flow in self._refused:
            self.draft.decide_flow(flow, "enabled", "false")

    def _switch_group_sync(self, flow: str, checkpoint: ImportedConnector) -> None:
        """Group offsets are derived from checkpoints, so without checkpoints there are none."""
        key, emits = "sync.group.offsets.enabled", self.draft.flow_value(flow, "emit.checkpoints.enabled")
        wanted = checkpoint.config.get(key)
        interval = self.draft.flow_value(flow, "emit.checkpoints.interval.seconds")
        off = (emits and not java_boolean(emits)) or interval.strip().startswith("-")
        if wanted is not None and java_boolean(wanted.value.strip()) and off:
            self.draft.decide_flow(flow, key, "false")
            self.draft.report.mapped(wanted, f"{flow}.{key}", "off, as the checkpoints are")

    def _add_progress(self, flow: str, source: ImportedConnector) -> None:
        """Where its progress is stored, and under which name; otherwise all would be copied again."""
        name = source.setting.at(source.name)
        self.draft.set_flow(flow, "name", name, "the name under which progress is stored")
        if self.draft.flow_has(flow, "offsets.storage.topic"):
            return
        if source.offsets_topic is not None:
            self.draft.set_flow(flow, "offsets.storage.topic", source.offsets_topic)
        else:
            self._refused.add(flow)
            self.draft.report.to_do(
                source.setting,
                "nothing here tells the worker's offset.storage.topic, where the positions are: import again"
                f" with --offsets-topic TOPIC (often connect-offsets), or write {flow}.twinlog.start.time if"
                f" its worker runs standalone, with positions in a file; {flow} is switched off until then",
                becomes=f"{flow}.offsets.storage.topic",
            )

    def _refuse(self, flow: str, setting: Setting, text: str) -> None:
        self._refused.add(flow)
        self.draft.report.impossible(setting, f"{text}; {flow} is switched off until you have decided")


def _becomes(flow: str, key: str) -> str:
    """The usual name of a connector's key in a properties file."""
    for side, alias in zip(_SIDES, flow.split("->"), strict=True):
        if key.startswith(f"{side}.cluster."):
            return f"{alias}.{key.removeprefix(f'{side}.cluster.')}"
    return f"{flow}.{key}"


def _is_known(spec: KeySpec, setting: Setting) -> bool:
    try:
        parse_value(spec, setting.value)
    except ValueError:
        return False
    return True


_SWITCHES = {
    Connector.SOURCE: "enabled",
    Connector.CHECKPOINT: "emit.checkpoints.enabled",
    Connector.HEARTBEAT: "emit.heartbeats.enabled",
}


def _switched_off(connector: ImportedConnector) -> Setting | None:
    enabled = connector.config.get("enabled")
    if (
        enabled is not None
        and not java_boolean(enabled.value.strip())
        and connector.kind is not Connector.HEARTBEAT
    ):
        return enabled
    return connector.stopped
