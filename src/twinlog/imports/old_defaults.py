"""Defaults of earlier releases of Kafka that decide what is copied."""

from collections.abc import Iterable

from twinlog.config.keys.table import BY_ANY_NAME
from twinlog.imports.connector import ImportedConnector
from twinlog.imports.draft import Draft


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
