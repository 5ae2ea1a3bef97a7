"""Checks documents against the part of JSON Schema (2020-12) that Twinlog's schemas use."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_WORDS = frozenset(("$schema", "$defs", "title", "description"))
"""Keywords that demand nothing of a document."""
_CHECKED = frozenset(
    (
        "$ref",
        "type",
        "enum",
        "anyOf",
        "minimum",
        "required",
        "properties",
        "additionalProperties",
        "propertyNames",
        "items",
        "minItems",
        "maxItems",
    )
)


def violations(document: Any, schema: Mapping[str, Any]) -> list[str]:
    """Violations of the schema, each with its place; empty for a valid document. Raises ValueError for a
    schema with an unsupported keyword."""
    return [*_broken(document, schema, schema, "$")]


def _broken(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], at: str) -> Iterator[str]:
    unknown = schema.keys() - _WORDS - _CHECKED
    if unknown:
        raise ValueError(f"not checked here: {sorted(unknown)}")
    if "$ref" in schema:
        yield from _broken(value, _named(root, schema["$ref"]), root, at)
    names = schema.get("type", ())
    if names and not any(_is_of(value, name) for name in ([names] if isinstance(names, str) else names)):
        yield f"{at}: {value!r} is not of type {names}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    if "anyOf" in schema:
        yield from _broken_choice(value, schema["anyOf"], root, at)
    if isinstance(value, int) and value < schema.get("minimum", value):
        yield f"{at}: {value} is below {schema['minimum']}"
    if isinstance(value, dict):
        yield from _broken_object(value, schema, root, at)
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            yield f"{at}: {len(value)} items are too few or too many"
        for number, each in enumerate(value):
            yield from _broken(each, schema.get("items", {}), root, f"{at}[{number}]")


def _broken_choice(
    value: Any, choices: Sequence[Mapping[str, Any]], root: Mapping[str, Any], at: str
) -> Iterator[str]:
    """Empty when one alternative fits, else the violations of the one that fits best, which are found
    deepest."""
    found = [list(_broken(value, each, root, at)) for each in choices]
    if all(found):
        yield from min(found, key=lambda broken: (broken[0].startswith(f"{at}: "), len(broken)))


def _broken_object(
    value: Mapping[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], at: str
) -> Iterator[str]:
    yield from (f"{at}: {name} is absent" for name in schema.get("required", ()) if name not in value)
    known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    for name, each in value.items():
        yield from _broken(name, schema.get("propertyNames", {}), root, f"{at}: name")
        if name not in known and others is False:
            yield f"{at}.{name}: is not known"
        else:
            yield from _broken(each, known.get(name, others), root, f"{at}.{name}")


def _is_of(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name])


def _named(root: Mapping[str, Any], reference: str) -> Mapping[str, Any]:
    found = re.fullmatch(r"#/\$defs/(\w+)", reference)
    if found is None:
        raise ValueError(f"{reference} is no reference into this schema")
    schema: Mapping[str, Any] = root["$defs"][found[1]]
    return schema
