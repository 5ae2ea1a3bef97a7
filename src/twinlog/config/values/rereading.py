"""Secrets that change while a process runs: references to files are read again when a client connects.

What a client's properties say after the start is plain text. The text as written, and the providers it needs,
stay beside it under keys of their own, so that they reach wherever the client is made, also on workers of
Spark: `twinlog.written.<key>`, and `twinlog.written` with the providers as JSON. They are never shown.
"""

import json
from collections.abc import Mapping

from twinlog.config.keys.client import NOTES, SECURITY_KEYS
from twinlog.config.problems import Findings
from twinlog.config.values.providers import FileSystem, Resolver, configured_resolver
from twinlog.properties import Property


def notes(resolved: Mapping[str, Property], resolver: Resolver) -> dict[str, str]:
    """What has to stay beside the properties of a client; empty when nothing of it can change."""
    written = {
        f"{NOTES}.{key}": prop.written
        for key, prop in resolved.items()
        if key in SECURITY_KEYS and prop.written is not None and resolver.may_change(prop.written)
    }
    return {**written, NOTES: json.dumps(dict(resolver.settings))} if written else {}


def reread(
    properties: Mapping[str, str], *, environ: Mapping[str, str], files: FileSystem
) -> Mapping[str, str]:
    """The properties with their references read again. What cannot be read now keeps its value."""
    if NOTES not in properties:
        return properties
    settings = {key: Property(key=key, value=value) for key, value in json.loads(properties[NOTES]).items()}
    resolver = configured_resolver(settings, environ=environ, files=files, findings=Findings(file=""))
    fresh = dict(properties)
    for key, written in properties.items():
        if key.startswith(f"{NOTES}."):
            value = resolver.filled(written)
            if value is not None:
                fresh[key.removeprefix(f"{NOTES}.")] = value.strip()
    return fresh
