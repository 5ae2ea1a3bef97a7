"""The JSON schema of the report: `twinlog verify --schema` prints it."""

import json
from importlib.resources import files
from typing import Any


def report_schema() -> dict[str, Any]:
    """JSON Schema, 2020-12."""
    text = files(__package__).joinpath("report.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
