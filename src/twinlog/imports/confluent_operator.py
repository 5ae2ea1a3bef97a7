"""Converts connectors of Confluent's operator (`kind: Connector` of `platform.confluent.io`) into the form of
Kafka Connect's REST API."""

from collections.abc import Iterator, Sequence

from twinlog.imports.documents import Tree, resources

_GROUP = "platform.confluent.io/"
_KIND = "Connector"


def connectors_in(documents: Sequence[Tree]) -> Tree:
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
