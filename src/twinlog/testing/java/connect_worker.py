"""A real worker of Kafka Connect (distributed) with MirrorMaker 2's connectors, for tests that take over and
hand back."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from twinlog.local.port_lease import PortLease
from twinlog.local.processes.process import GuardedProcess, ProcessError, last_lines
from twinlog.local.tools import QUICK_START, SERVICE_LOGGING, java_command
from twinlog.properties_text import render_properties

_MAIN_CLASS: Final = "org.apache.kafka.connect.cli.ConnectDistributed"
_BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"
_START_SECONDS = 180.0
_STOP_SECONDS = 30.0
_CALL_SECONDS = 60.0
_POLL_SECONDS = 0.2


class ConnectWorker:
    """One worker on `client`'s cluster; its topics begin with `name`. Ends with this process. Blocks."""

    def __init__(self, name: str, client: Mapping[str, str], directory: Path) -> None:
        self.name = name
        self.group = f"{name}-group"
        self.offsets_topic = f"{name}-offsets"
        self._lease = PortLease(1)
        self.address = f"127.0.0.1:{self._lease.ports[0]}"
        """`HOST:PORT` of its REST API."""
        self._url = f"http://{self.address}"
        self._log = directory / f"{name}.log"
        self._file = directory / f"{name}.properties"
        settings = {
            **client,
            "group.id": self.group,
            "listeners": self._url,
            "plugin.discovery": "service_load",
            "offset.flush.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
            "offset.storage.topic": self.offsets_topic,
            "config.storage.topic": f"{name}-configs",
            "status.storage.topic": f"{name}-status",
            **dict.fromkeys(("key.converter", "value.converter", "header.converter"), _BYTES),
            **{f"{kind}.storage.replication.factor": "1" for kind in ("offset", "config", "status")},
        }
        self._file.write_text(render_properties(settings), encoding="ascii")
        self._process: GuardedProcess | None = None

    def start(self) -> None:
        """Return once its REST API answers. Raises ProcessError and leaves nothing running then."""
        command = java_command(
            _MAIN_CLASS, str(self._file), logging=SERVICE_LOGGING, jvm=("-Xmx512m", *QUICK_START)
        )
        self._process = GuardedProcess(command, output=self._log)
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                self.call("GET", "/connectors")
            except (OSError, ProcessError):
                if self._process.running and time.monotonic() < deadline:
                    time.sleep(_POLL_SECONDS)
                    continue
                self._process.kill()
                raise ProcessError(f"Kafka Connect did not start:\n{last_lines(self._log, 15)}") from None
            return

    def end(self) -> None:
        """Send SIGTERM, and SIGKILL after 30 s. Idempotent; `start` runs it again with the same
        connectors."""
        if self._process is not None:
            self._process.stop(_STOP_SECONDS)

    def stop(self) -> None:
        """End it and release its port. Idempotent."""
        self.end()
        self._lease.release()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON answer of its REST API, None for an empty one. Raises ProcessError for a refusal."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._url}{path}", content, headers, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=_CALL_SECONDS) as answer:  # noqa: S310
                text = answer.read()
        except urllib.error.HTTPError as refusal:
            raise ProcessError(f"{method} {path}: {refusal.code} {refusal.read()[:500]!r}") from refusal
        return json.loads(text) if text else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
