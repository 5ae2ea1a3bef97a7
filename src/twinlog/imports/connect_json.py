"""Connectors in the JSON of Kafka Connect's REST API, and of services that run Connect.

`{"name": …, "config": {…}}`, a list of these, `GET /connectors?expand=info` (with `expand=status` also their
states), or the bare configuration of `GET /connectors/<name>/config`. Google's managed Kafka has `configs`,
MSK Connect `connectorConfiguration`.
"""

from collections.abc import Iterator

from twinlog.imports.connector import ImportedConnector, kind_of
from twinlog.imports.documents import Tree
from twinlog.imports.replicator import is_replicator
from twinlog.imports.report import Report, Setting

_CONFIGURATIONS = ("config", "configs", "connectorConfiguration")
_RUNNING = ("", "RUNNING", "UNASSIGNED", "FAILED", "RESTARTING")


def is_connect(tree: Tree) -> bool:
    return any(True for _ in _found(tree))


def connectors_of(
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
