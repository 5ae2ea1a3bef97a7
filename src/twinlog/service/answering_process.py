"""Tells with every answer which process gave it, from which properties file, so that nobody mistakes one
deployment for another. Pure.

JSON, because gRPC metadata allow only ASCII.
"""

import json
from dataclasses import asdict, dataclass
from typing import Self

from twinlog import strange_json

PROCESS_METADATA_KEY = "twinlog-process"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweringProcess:
    host: str
    pid: int
    config: str
    """The properties file on that host, with links resolved."""

    def metadata(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_metadata(cls, text: str) -> Self | None:
        """None for an earlier version, which sends nothing, or a later one that sends other fields."""
        try:
            told = strange_json.loads(text)
            return cls(host=str(told["host"]), pid=int(told["pid"]), config=str(told["config"]))
        except (ValueError, KeyError, TypeError):
            return None
