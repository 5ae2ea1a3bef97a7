"""Secrets that change while a process runs: references to files are read again when a client connects.

After the start, a client's properties contain plain text. The text as written, and the providers it needs,
stay next to it under their own keys, so that they reach every place where the client is created, also workers
of Spark: `twinlog.written.<key>`, and `twinlog.written` with the providers as JSON. They are never shown.
"""

import json
from collections.abc import Mapping

from twinlog.config.keys.client import NOTES, SECURITY_KEYS
from twinlog.config.problems import Findings
from twinlog.config.values.providers import FileSystem, Resolver, configured_resolver
from twinlog.properties import Property


def notes(resolved: Mapping[str, Property], resolver: Resolver) -> dict[str, str]:
    """What has to stay with the properties of a client; empty when none of its values can change."""
    written = {
        f"{NOTES}.{key}": prop.written
        for key, prop in resolved.items()
        if key in SECURITY_KEYS and prop.written is not None and resolver.may_change(prop.written)
    }
    return {**written, NOTES: json.dumps(dict(resolver.settings))} if written else {}


def reread(
    properties: Mapping[str, str], *, environ: Mapping[str, str], files: FileSystem
) -> Mapping[str, str]:
    """The properties with their references read again. A value that cannot be read now stays."""
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
