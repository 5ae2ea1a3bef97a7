"""Which process answers a call, and for which properties file: told with every answer, so that nobody takes
one deployment for another. Pure.

In metadata of gRPC only ASCII may stand: it is JSON.
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
    """The properties file, with links resolved, on that host."""

    def metadata(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_metadata(cls, text: str) -> Self | None:
        """None: an earlier version, which does not tell, or a later one that tells something else."""
        try:
            told = strange_json.loads(text)
            return cls(host=str(told["host"]), pid=int(told["pid"]), config=str(told["config"]))
        except (ValueError, KeyError, TypeError):
            return None
