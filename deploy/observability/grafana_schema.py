"""Write the JSON Schema of Grafana's dashboards, as far as our boards use it, from Grafana's own models:

    pip install 'grafana-foundation-sdk==1769699379!11.6.0'
    python -m deploy.observability.grafana_schema tests/unit/deploy/grafana_schema.json

The package is Grafana Labs', under the Apache License 2.0. It is needed to write the file, not to use it.
"""

import enum
import importlib
import inspect
import json
import re
import sys
import types
import typing
from pathlib import Path
from typing import Any

PANELS = ("timeseries", "stat", "table")
_NAME = re.compile(r'"(\w+)"\]? ?[:=] self\.(\w+)')
"""In the models' `to_json`: the name in JSON, and that of the attribute."""
_PLAIN: dict[object, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
}


def schema() -> dict[str, Any]:
    """The JSON schema of a whole dashboard with panels of these kinds that ask Prometheus."""
    definitions: dict[str, Any] = {}
    dashboard = _models("dashboard")
    root = _of(dashboard.Dashboard, definitions)
    query = _of(_models("prometheus").Dataquery, definitions)
    panels = []
    for kind in PANELS:
        plugin = _models(kind)
        panel = json.loads(json.dumps(definitions["dashboard_Panel"]))
        panel["properties"] |= {
            "type": {"enum": [kind]},
            "options": _of(plugin.Options, definitions),
            "targets": {"type": "array", "items": query},
        }
        panel["required"] = ["type"]
        definitions[f"panel_{kind}"] = panel
        panels.append({"$ref": f"#/$defs/panel_{kind}"})
    definitions["dashboard_Dashboard"]["properties"]["panels"] = {"type": "array", "items": {"anyOf": panels}}
    for name in ("dashboard_Panel", "dashboard_RowPanel"):
        definitions.pop(name, None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Dashboard of Grafana 11.6",
        "description": "Written by `python -m deploy.observability.grafana_schema` from the models of"
        " grafana-foundation-sdk 11.6.0, Copyright Grafana Labs, Apache License 2.0.",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def _models(name: str) -> Any:
    return importlib.import_module(f"grafana_foundation_sdk.models.{name}")


def _of(wanted: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a type."""
    if wanted in _PLAIN:
        return dict(_PLAIN[wanted])
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is list:
        return {"type": "array", "items": _of(arguments[0], definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(arguments[1], definitions)}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin in (typing.Union, types.UnionType):
        choices = [_of(each, definitions) for each in arguments if each is not type(None)]
        return choices[0] if len(choices) == 1 else {"anyOf": choices}
    if inspect.isclass(wanted) and issubclass(wanted, enum.Enum):
        return {"enum": [each.value for each in wanted]}
    if inspect.isclass(wanted) and hasattr(wanted, "to_json") and "to_json" in vars(wanted):
        return _of_class(wanted, definitions)
    return {}


def _of_class(model: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    name = f"{model.__module__.rpartition('.')[2]}_{model.__name__}"
    if name not in definitions:
        definitions[name] = {}
        hints = typing.get_type_hints(model)
        source = inspect.getsource(model.to_json)
        names = {attribute: in_json for in_json, attribute in _NAME.findall(source)}
        definitions[name] = {
            "type": "object",
            "properties": {
                names[attribute]: _nullable(hint, definitions)
                for attribute, hint in hints.items()
                if attribute in names
            },
            "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{name}"}


def _nullable(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    found = _of(hint, definitions)
    if type(None) in typing.get_args(hint) and found:
        return {"anyOf": [found, {"type": "null"}]}
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(schema(), indent=1) + "\n")
