"""The file of a bundle: entries of limited size, without secrets, in one tar.gz."""

import io
import json
import tarfile
from dataclasses import dataclass, field
from typing import Any

from twinlog.cli.debug.secrets import Blanker

MOST_ENTRY_BYTES = 2 << 20
MOST_BYTES = 24 << 20
"""Size of all entries together, before they are compressed."""


@dataclass(slots=True, kw_only=True)
class Archive:
    """Call `add` for what was found and `miss` for what was not, then `content`."""

    blanked: Blanker
    at_seconds: int
    """When it is created, for the times of its entries."""
    entries: dict[str, bytes] = field(default_factory=dict)
    missing: list[dict[str, str]] = field(default_factory=list)
    _bytes: int = 0

    def add(self, name: str, text: str, *, keep_end: bool = False) -> None:
        """Add an entry. A text that is too long is cut to its beginning, or with `keep_end` to its end."""
        content = self.blanked(text).encode("utf-8", "replace")
        room = max(0, min(MOST_ENTRY_BYTES, MOST_BYTES - self._bytes))
        if len(content) > room:
            self.miss(name, "CUT", f"it has {len(content)} bytes; {room} are included")
            content = content[len(content) - room :] if keep_end else content[:room]
        self.entries[name] = content
        self._bytes += len(content)

    def add_json(self, name: str, document: Any) -> None:
        self.add(name, json.dumps(document, indent=1, ensure_ascii=False, default=str) + "\n")

    def miss(self, name: str, reason: str, message: str) -> None:
        """Record why something is missing or incomplete."""
        self.missing.append({"what": name, "reason": reason, "message": self.blanked(message)})

    def content(self, summary: dict[str, Any]) -> bytes:
        """The tar.gz; its first entry is `summary`, with what is missing."""
        first = json.dumps({**summary, "missing": self.missing}, indent=1, ensure_ascii=False, default=str)
        entries = {"summary.json": self.blanked(first).encode() + b"\n", **self.entries}
        whole = io.BytesIO()
        with tarfile.open(fileobj=whole, mode="w:gz") as archive:
            for name, content in entries.items():
                info = tarfile.TarInfo(f"twinlog-debug/{name}")
                info.size, info.mtime, info.mode = len(content), self.at_seconds, 0o600
                archive.addfile(info, io.BytesIO(content))
        return whole.getvalue()
