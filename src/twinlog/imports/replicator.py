"""Converts Confluent Replicator's connector from the JSON of Kafka Connect's REST API.

By default it keeps topic names, and commits its positions on the source for its own group.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from twinlog.config.keys.client import CLUSTER_CLIENT_KEYS, KEYS_BY_CLIENT
from twinlog.config.keys.spec import java_boolean, split_list
from twinlog.imports.documents import Tree
from twinlog.imports.draft import Draft, Setting
from twinlog.imports.references import References
from twinlog.imports.topic_lists import is_internal

CLASS = "io.confluent.connect.replicator.ReplicatorSourceConnector"
_SAME_NAME = "${topic}"
_IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
_SIDES = {"src.kafka.": 0, "dest.kafka.": 1}
_RENAMED = re.compile(r"([A-Za-z0-9._-]*)\$\{topic\}([A-Za-z0-9._-]*)")
"""Matches `topic.rename.format`: what comes before and after the name."""
_SWITCHES_OFF = {
    "schema.subject.translator.class": "it changes records",
    "topic.preserve.partitions": "copies lie in partitions by their keys, new ones in those of the source",
}
"""Keys with which Twinlog would not continue the copies as they began; the second one if it is false."""
_CONSUMER_KEYS = KEYS_BY_CLIENT["consumer"]
_CONVERTERS = ("key.converter", "value.converter", "header.converter")
_MAPPED = {
    "tasks.max": "tasks.max",
    "topic.config.sync": "sync.topic.configs.enabled",
    "dest.topic.replication.factor": "replication.factor",
}
_READ_BELOW = (
    "name", "connector.class", "topic.whitelist", "topic.regex", "topic.blacklist", "topic.rename.format",
    "topic.config.sync", "tasks.max", "offset.topic.commit", "src.consumer.group.id",
)  # fmt: skip


def is_replicator(class_name: str) -> bool:
    return class_name.strip() in (CLASS, CLASS.rpartition(".")[2])


@dataclass(slots=True, kw_only=True)
class ReplicatorImport:
    """Writes one connector into a draft, as the flow between these aliases."""

    draft: Draft
    references: References
    source: str
    target: str

    @property
    def flow(self) -> str:
        return f"{self.source}->{self.target}"

    def add(self, name: str, config_tree: Tree, whole: Setting) -> None:
        config = config_tree.settings()
        flow, draft = self.flow, self.draft
        for alias in (self.source, self.target):
            draft.add_cluster(alias)
        draft.set_top("emit.heartbeats.enabled", "false")
        runs = [self._names(config, whole), self._positions(name, config, whole)]
        for key, found in config.items():
            runs.append(self._add_key(key, self.references.translated(found, self._becomes(key))))
        draft.decide_flow(flow, "enabled", "true" if all(runs) else "false")
        draft.decide_flow(flow, "replication.policy.class", _IDENTITY)
        draft.decide_flow(flow, "sync.topic.acls.enabled", "false")
        draft.decide_flow(flow, "emit.checkpoints.enabled", "false")

    def _becomes(self, key: str) -> str:
        side = next((prefix for prefix in _SIDES if key.startswith(prefix)), None)
        if side is None:
            return f"{self.flow}.{key}"
        return f"{(self.source, self.target)[_SIDES[side]]}.{key.removeprefix(side)}"

    def _names(self, config: Mapping[str, Setting], whole: Setting) -> bool:
        """Which topics are copied, and the names of their copies; False when Twinlog cannot do that."""
        report, flow = self.draft.report, self.flow
        listed = [*_literal(config, "topic.whitelist")]
        included = [name for name in listed if not is_internal(name)]
        if internal := [name.replace("\\.", ".") for name in listed if is_internal(name)]:
            report.impossible(
                config["topic.whitelist"], f"{', '.join(internal)}: internal topics are never copied"
            )
        expression = config.get("topic.regex")
        if expression is not None and "," in expression.value:
            report.impossible(expression, "a comma ends a pattern here: write the expression without one")
            return False
        included += [expression.value] if expression is not None else []
        for key, names, becomes in (
            ("topic.whitelist", included, "topics"),
            ("topic.blacklist", [*_literal(config, "topic.blacklist")], "topics.exclude"),
        ):
            # The default of topics.exclude would leave out listed topics, such as orders.replica.
            self.draft.decide_flow(flow, becomes, ", ".join(dict.fromkeys(names)))
            if names:
                report.mapped(config.get(key) or config["topic.regex"], f"{flow}.{becomes}")
        if not included:
            report.impossible(whole, "it has neither topic.whitelist nor topic.regex")
        rename = config.get("topic.rename.format")
        if rename is not None and rename.value.strip() != _SAME_NAME:
            around = _RENAMED.fullmatch(rename.value.strip())
            if around is None:
                report.impossible(
                    rename,
                    f"copies have other names; {flow} is switched off until you have written"
                    f" {flow}.twinlog.topic.rename (docs/policies.md)",
                )
                return False
            rule = rename.at(f"(.*) -> {around[1]}$1{around[2]}")
            self.draft.set_flow(flow, "twinlog.topic.rename", rule)
        return bool(included)

    def _positions(self, name: str, config: Mapping[str, Setting], whole: Setting) -> bool:
        """The group that committed for it; False when there is none: all would be copied again."""
        commits = config.get("offset.topic.commit")
        if commits is not None and not java_boolean(commits.value.strip()):
            self.draft.report.to_do(
                commits,
                f"its positions are not on the source: write {self.flow}.twinlog.start.time, a time before"
                " the last copied record; it is switched off until then",
                becomes=f"{self.flow}.twinlog.start.time",
            )
            return False
        group = config.get("src.consumer.group.id") or whole.at(name)
        if not group.value.strip():
            self.draft.report.to_do(
                whole,
                f"neither the connector's name nor src.consumer.group.id is in it: write"
                f" {self.flow}.twinlog.start.group, the group that committed for it; it is switched off until"
                " then",
                becomes=f"{self.flow}.twinlog.start.group",
            )
            return False
        return self.draft.set_flow(self.flow, "twinlog.start.group", group, "the group that committed for it")

    def _add_key(self, key: str, setting: Setting) -> bool:
        """False when records would differ from those before."""
        draft, report = self.draft, self.draft.report
        side = next((prefix for prefix in _SIDES if key.startswith(prefix)), None)
        if side is not None:
            name, alias = key.removeprefix(side), (self.source, self.target)[_SIDES[side]]
            if name in CLUSTER_CLIENT_KEYS:
                draft.set_cluster(alias, name, setting)
            else:
                report.ignored(setting, "no setting of a cluster")
        elif key in _MAPPED:
            draft.set_flow(self.flow, _MAPPED[key], setting)
        elif key in _SWITCHES_OFF and (
            not key.startswith("topic.") or not java_boolean(setting.value.strip())
        ):
            report.impossible(
                setting, f"{_SWITCHES_OFF[key]}; {self.flow} is switched off until you have decided"
            )
            return False
        elif key == "provenance.header.enable" and java_boolean(setting.value.strip()):
            report.to_do(
                setting,
                "copies get no such header here, and records that have one are copied like all others: do not"
                " run a flow back under the same names beside this one",
            )
        elif key in _READ_BELOW:
            pass
        elif (
            key.startswith("src.consumer.")
            and key.removeprefix("src.consumer.") in KEYS_BY_CLIENT["consumer"]
        ):
            draft.set_cluster(self.source, key.removeprefix("src."), setting)
        elif key.startswith(("transforms", "predicates")) or key.removeprefix("src.") in _CONVERTERS:
            if key.endswith("converter") and setting.value.strip().endswith("ByteArrayConverter"):
                report.ignored(setting, "records are copied byte for byte, nothing is converted")
            elif setting.value.strip():
                report.impossible(
                    setting,
                    f"it changes records or names; {self.flow} is switched off until you have decided",
                )
                return False
        else:
            report.ignored(setting, "about Replicator itself")
        return True


def _literal(config: Mapping[str, Setting], key: str) -> Iterator[str]:
    """Names as patterns that match only themselves."""
    found = config.get(key)
    for name in split_list(found.value) if found is not None else ():
        if name:
            yield name.replace(".", r"\.")
