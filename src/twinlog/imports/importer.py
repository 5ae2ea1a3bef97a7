"""Converts the text of any known format into a properties file and a report.

Converts connectors of Confluent's operator (`kind: Connector` of `platform.confluent.io`) into the form of
Kafka Connect's REST API.

Connectors in the JSON of Kafka Connect's REST API, and of services that run Connect.

`{"name": …, "config": {…}}`, a list of these, `GET /connectors?expand=info` (with `expand=status` also their
states), or the bare configuration of `GET /connectors/<name>/config`. Google's managed Kafka has `configs`,
MSK Connect `connectorConfiguration`.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from twinlog.config import NoticeLevel, load
from twinlog.config.values.providers import OneText
from twinlog.errors import ConfigError
from twinlog.imports import strimzi, topic_lists
from twinlog.imports.connectors import ConnectorImport, ImportedConnector, kind_of
from twinlog.imports.documents import Tree, check_size, read_json, read_yaml, resources
from twinlog.imports.draft import Draft, Fate, Line, Report, Setting
from twinlog.imports.references import DEFAULT_SECRETS_DIR, References
from twinlog.imports.replicator import ReplicatorImport, is_replicator
from twinlog.imports.topic_lists import ListSide, TopicListImport
from twinlog.properties import parse

_GROUP = "platform.confluent.io/"
_KIND = "Connector"


def operator_connectors(documents: Sequence[Tree]) -> Tree:
    """A list of `{"name": ..., "config": {...}}`; empty if there is no such resource."""
    return Tree(place="", items=tuple(_connectors(documents)))


def _connectors(documents: Sequence[Tree]) -> Iterator[Tree]:
    for resource in resources(documents):
        if resource.text("kind") == _KIND and resource.text("apiVersion").startswith(_GROUP):
            spec, configs = resource.get("spec"), resource.get("spec", "configs")
            name = spec.get("name") if spec.get("name").is_there else resource.get("metadata", "name")
            settings = {**configs.fields, "connector.class": spec.get("class")}
            if spec.get("taskMax").is_there:
                settings["tasks.max"] = spec.get("taskMax")
            config = Tree(place=configs.place, file=configs.file, line=configs.line, fields=settings)
            yield Tree(
                place=resource.place,
                file=resource.file,
                line=resource.line,
                fields={"name": name, "config": config},
            )


_CONFIGURATIONS = ("config", "configs", "connectorConfiguration")
_RUNNING = ("", "RUNNING", "UNASSIGNED", "FAILED", "RESTARTING")


def is_connect(tree: Tree) -> bool:
    return any(True for _ in _found(tree))


def connect_connectors(
    tree: Tree, report: Report, *, offsets_topic: str, version: tuple[int, int] | None
) -> Iterator[ImportedConnector]:
    """MM2's connectors; others are reported and left out."""
    for name, config, whole in _found(tree):
        class_name = config.text("connector.class")
        kind = kind_of(class_name)
        place = whole.setting
        if is_replicator(class_name):
            continue
        if kind is None:
            report.ignored(place, f"{name}: {class_name or 'no class'} is none of MirrorMaker 2's")
            continue
        state = whole.get("status", "connector", "state")
        state = state if state.is_there else whole.get("state")
        stopped = (state.scalar or "").upper() not in _RUNNING
        yield ImportedConnector(
            kind=kind,
            name=name or str(kind),
            config=config.settings(),
            setting=place,
            offsets_topic=Setting(value=offsets_topic, place="--offsets-topic") if offsets_topic else None,
            stopped=state.setting if stopped else None,
            mm2_version=version,
        )


def replicators_of(tree: Tree) -> Iterator[tuple[str, Tree, Tree]]:
    """Name, configuration and document of each connector of Confluent Replicator."""
    return (found for found in _found(tree) if is_replicator(found[1].text("connector.class")))


def _found(tree: Tree, name: str = "") -> Iterator[tuple[str, Tree, Tree]]:
    """Name, configuration and document of each connector; `name` is that of its field."""
    for item in tree.items:
        yield from _found(item)
    if "connector.class" in tree.fields:
        yield tree.text("name") or name, tree, tree
        return
    for key in _CONFIGURATIONS:
        config = tree.get(key)
        if "connector.class" in config.fields:
            own = tree.text("name") or tree.text("connectorName")
            # Google gives the path of a resource, which ends with the connector's name.
            yield own.rpartition("/")[2] or config.text("name") or name, config, tree
            return
    for key, entry in tree.fields.items():
        config = entry.get("info", "config")
        if "connector.class" in config.fields:
            yield entry.get("info").text("name") or key, config, entry
        else:
            yield from _found(entry, key)


_PROPERTIES = re.compile(
    r"^[ \t]*(connector\.class|clusters|bootstrap\.servers|zookeeper\.connect|metadata\.broker\.list)[ \t]*=",
    re.MULTILINE,
)
"""A line that occurs in properties files of connectors and replicators."""
_TAKEN_AS_IT_IS = (
    "this is a file of MirrorMaker 2's dedicated mode, which Twinlog reads as it is: `twinlog preflight`"
    " checks it (docs/migration/mirrormaker2.md)"
)
_MIRROR_MAKER_1 = (
    "this is not a connector's file; for MirrorMaker 1 run `twinlog mirror-maker` with both files"
    " (docs/migration/mirrormaker1.md)"
)
_RESOURCE = re.compile(r"^apiVersion:", re.MULTILINE)


class Format(StrEnum):
    AUTO = "auto"
    STRIMZI = "strimzi"
    CONNECT = "connect"
    UREPLICATOR = "ureplicator"
    BROOKLIN = "brooklin"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """What a format does not contain."""

    format: Format = Format.AUTO
    source: str = ""
    """`ALIAS=HOST:PORT,…` or one of both; for lists of topics."""
    target: str = ""
    group: str = ""
    """The consumer group that committed on the source; for lists of topics."""
    offsets_topic: str = ""
    """The worker's `offset.storage.topic`; for connectors from the REST API."""
    mm2_version: tuple[int, int] | None = None
    """The release of Kafka whose defaults applied; None = as in the file, else 4.x."""
    secrets_dir: str = DEFAULT_SECRETS_DIR
    by_chart: bool = False
    """Secrets are mounted by the Helm chart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    format: Format
    properties: str
    lines: tuple[Line, ...]

    @property
    def complete(self) -> bool:
        """Nothing was impossible."""
        return all(line.fate is not Fate.IMPOSSIBLE for line in self.lines)


def import_text(text: str, *, file: str, options: ImportOptions | None = None) -> Imported:
    """Import a file's text; `file` is only used in messages. Raises ConfigError with file and line."""
    options = options or ImportOptions()
    check_size(text, file)
    report = Report()
    draft = Draft(report)
    format_ = _Reading(text, file, options, draft).read()
    if not any(line.fate is Fate.MAPPED or line.becomes for line in report.lines):
        _raise_nothing(file, report)
    properties = draft.render(origin=file)
    refusal, without_effect = _read_back(properties)
    if refusal:
        report.impossible(Setting(value="", place="the properties file"), f"is refused as it is: {refusal}")
        properties = draft.render(origin=file)
    lines = tuple(_told(line, without_effect) for line in report.lines)
    return Imported(format=format_, properties=properties, lines=lines)


def _told(line: Line, without_effect: Mapping[str, str]) -> Line:
    """A key that is in the file but has no effect there is not reported as mapped."""
    if line.fate is Fate.MAPPED and line.becomes in without_effect:
        return replace(line, fate=Fate.IGNORED, text=without_effect[line.becomes])
    return line


def _raise_nothing(file: str, report: Report) -> None:
    told = [(f"line {line.line}, " if line.line else "", line) for line in report.lines[:3]]
    why = "; ".join(f"{where}{line.place}: {line.text}" for where, line in told)
    raise ConfigError(f"{file}: it contains no replication{f' ({why})' if why else ''}")


class _Reading:
    def __init__(self, text: str, file: str, options: ImportOptions, draft: Draft) -> None:
        self._text, self._file, self._options, self._draft = text, file, options, draft
        self._references = References(
            draft=draft, directory=options.secrets_dir.rstrip("/"), by_chart=options.by_chart
        )

    def read(self) -> Format:
        wanted, text = self._options.format, self._text
        looks_like_json = text.lstrip()[:1] in ("{", "[")
        if wanted is Format.UREPLICATOR or (wanted is Format.AUTO and topic_lists.is_ureplicator(text)):
            return self._ureplicator(read_json(text, self._file) if looks_like_json else None)
        if looks_like_json:
            return self._json(read_json(text, self._file))
        if _PROPERTIES.search(text) and not _RESOURCE.search(text):
            return self._properties()
        return self._yaml(read_yaml(text, self._file))

    def _json(self, tree: Tree) -> Format:
        wanted = self._options.format
        if wanted is Format.STRIMZI or (wanted is Format.AUTO and strimzi.is_strimzi((tree,))):
            return self._strimzi((tree,))
        operated = operator_connectors((tree,))
        if operated.items:
            return self._connect(operated)
        if wanted is Format.CONNECT or (wanted is Format.AUTO and is_connect(tree)):
            return self._connect(tree)
        if wanted is Format.BROOKLIN or (wanted is Format.AUTO and topic_lists.is_brooklin(tree)):
            streams = [*topic_lists.datastreams(tree)]
            topic_lists.add_datastreams(
                streams, self._draft, self._source, self._target, group=self._options.group
            )
            return Format.BROOKLIN
        if wanted is Format.AUTO and topic_lists.is_topic_json(tree):
            return self._ureplicator(tree)
        raise self._unknown()

    def _connect(self, tree: Tree) -> Format:
        found = connect_connectors(
            tree,
            self._draft.report,
            offsets_topic=self._options.offsets_topic,
            version=self._options.mm2_version,
        )
        ConnectorImport(draft=self._draft, references=self._references).add([*found])
        self._replicators([*replicators_of(tree)])
        return Format.CONNECT

    def _properties(self) -> Format:
        """The file of a connector that a standalone worker runs."""
        entries = parse(self._text.encode(), file=self._file, encoding="utf-8").entries
        if "connector.class" not in entries:
            raise ConfigError(
                f"{self._file}: {_TAKEN_AS_IT_IS if 'clusters' in entries else _MIRROR_MAKER_1}",
                metadata={"file": self._file},
            )
        fields = {
            key: Tree(place=key, file=self._file, line=entry.line, is_scalar=True, scalar=entry.value)
            for key, entry in entries.items()
        }
        return self._connect(Tree(place="the file", file=self._file, line=1, fields=fields))

    def _replicators(self, found: Sequence[tuple[str, Tree, Tree]]) -> None:
        """Each has a source of its own, because a connector does not name its clusters."""
        for number, (name, config, whole) in enumerate(found, start=1):
            source = self._source.alias if len(found) == 1 else f"{self._source.alias}{number}"
            ReplicatorImport(
                draft=self._draft, references=self._references, source=source, target=self._target.alias
            ).add(name, config, whole.setting)

    def _yaml(self, documents: tuple[Tree, ...]) -> Format:
        if self._options.format is Format.STRIMZI or strimzi.is_strimzi(documents):
            return self._strimzi(documents)
        operated = operator_connectors(documents)
        if operated.items:
            return self._connect(operated)
        raise self._unknown()

    def _strimzi(self, documents: tuple[Tree, ...]) -> Format:
        found = strimzi.connectors_of(
            documents,
            self._draft,
            self._references,
            offsets_topic=self._options.offsets_topic,
            version=self._options.mm2_version,
        )
        ConnectorImport(draft=self._draft, references=self._references).add(found)
        return Format.STRIMZI

    def _ureplicator(self, tree: Tree | None) -> Format:
        renames: list[Setting] = []
        topics = (
            topic_lists.topics_of_json(tree, self._draft)
            if tree is not None
            else topic_lists.ureplicator_topics(self._text, self._draft, renames)
        )
        whole = Setting(value="", place="the list of topics")
        importer = TopicListImport(self._draft, self._source, self._target, group=self._options.group)
        importer.add([*topics], whole, renames=renames)
        return Format.UREPLICATOR

    @property
    def _source(self) -> ListSide:
        return ListSide.parse(self._options.source, "source")

    @property
    def _target(self) -> ListSide:
        return ListSide.parse(self._options.target, "target")

    def _unknown(self) -> ConfigError:
        known = ", ".join(each for each in Format if each is not Format.AUTO)
        return ConfigError(
            f"{self._file}: the format is not known: Strimzi's resources, Kafka Connect's connectors,"
            f" uReplicator's or Brooklin's topics; name it with --format ({known})"
        )


def _read_back(properties: str) -> tuple[str, Mapping[str, str]]:
    """Why the services would refuse the file, or empty; and which keys have no effect."""
    try:
        read = load(Path(os.devnull), environ={}, files=OneText(os.devnull, properties.encode("latin-1")))
    except ConfigError as error:
        if error.metadata["key"] == "clusters" and error.metadata["problems"] == "1":
            # Every flow is switched off, each with a reported reason.
            return "", {}
        return str(error).replace(os.devnull, "line").replace("\n", "; "), {}
    return "", {note.key: note.text for note in read.notices if note.level is NoticeLevel.INFO}
