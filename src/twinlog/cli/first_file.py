"""Writes the properties of a first flow between two open clusters, from the facts about them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from twinlog.properties_text import render_properties

_MOST_REPLICAS: Final = 3
_INTERNAL: Final = (
    "offset-syncs.topic.replication.factor",
    "offset.storage.replication.factor",
    "checkpoints.topic.replication.factor",
    "heartbeats.topic.replication.factor",
)
_KEEP_NAMES: Final = {"replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"}


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """A cluster of the flow."""

    alias: str
    bootstrap_servers: str
    broker_count: int = _MOST_REPLICAS
    cluster_id: str = ""
    """Empty while it is not known."""


def first_file(source: End, target: End, *, topics: str = ".*", keep_names: bool = False) -> str:
    """The file, in the format of MirrorMaker 2, with a comment for each choice. `topics` are names and
    regular expressions, separated by commas. `keep_names`: the copy of orders is named orders."""
    flow = f"{source.alias}->{target.alias}"
    fewest = min(source.broker_count, target.broker_count, _MOST_REPLICAS)
    copied = min(target.broker_count, _MOST_REPLICAS)
    blocks = [
        _block(
            "The names of the clusters."
            + ("" if keep_names else f" The copy of a topic is named {source.alias}.TOPIC."),
            {"clusters": f"{source.alias}, {target.alias}"},
        ),
        *(
            _block(
                f"Cluster id {end.cluster_id}." if end.cluster_id else "",
                {f"{end.alias}.bootstrap.servers": end.bootstrap_servers},
            )
            for end in (source, target)
        ),
        _block("One direction; the other one is off by default.", {f"{flow}.enabled": "true"}),
        _block(
            "Which topics are copied: names and regular expressions. Internal topics never are.",
            {f"{flow}.topics": topics},
        ),
        *([_block("Copies have the names of their topics.", _KEEP_NAMES)] if keep_names else []),
        _block(
            f"Replicas of new copies: {_MOST_REPLICAS}, or one on each broker of {target.alias}.",
            {"replication.factor": str(copied)},
        ),
        _block(
            f"Replicas of internal topics: {_MOST_REPLICAS}, or one on each broker of the smaller cluster.",
            dict.fromkeys(_INTERNAL, str(fewest)),
        ),
    ]
    return "\n".join(blocks)


def _block(why: str, properties: Mapping[str, str]) -> str:
    # An alias may have characters that the file format does not allow.
    comment = why.encode("ascii", "replace").decode()
    return (f"# {comment}\n" if why else "") + render_properties(properties)
