"""README: what is wrong is said, by name, with what to do about it."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from e2e.conftest import FAST_AND_SMALL
from integration.in_process import twinlog
from twinlog.cli import app
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.testing.brokers import KafkaPair, eventually

TWO = "clusters = A, B\nA.bootstrap.servers = 127.0.0.1:1\nB.bootstrap.servers = 127.0.0.1:2\n"


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        (f"{TWO}A->C.enabled = true\n", 4, "A->C.enabled"),
        (f"{TWO}A->B.enabled = true\ntopics = orders(\n", 5, "topics"),
        (f"{TWO}A->B.enabled = true\nemit.checkpoints.interval.seconds = soon\n", 5, "emit.checkpoints"),
        (f"{TWO}A->B.enabled = perhaps\n", 4, "A->B.enabled"),
        ("A.bootstrap.servers = 127.0.0.1:1\n", None, "clusters"),
    ],
)
def test_a_bad_file_is_refused_with_file_line_and_key(
    tmp_path: Path, text: str, line: int | None, key: str
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(text)
    ended = CliRunner().invoke(app, ["run", str(file)])
    assert ended.exit_code == 2, ended
    said = re.sub(r"\s+", " ", ended.stderr)
    assert key in said
    assert "mm2.properties" in said
    assert line is None or f":{line}" in said or f"line {line}" in said, said
    assert "Traceback" not in said


async def test_a_flow_that_cannot_work_is_named_and_ends_nothing(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    servers = kafka_pair.a.bootstrap_servers
    other_name = servers.replace("127.0.0.1", "localhost")
    assert other_name != servers
    text = f"""
clusters = here, gone, same
here.bootstrap.servers = {servers}
gone.bootstrap.servers = 127.0.0.1:9
same.bootstrap.servers = {other_name}
here->gone.enabled = true
here->same.enabled = true
{FAST_AND_SMALL}"""
    async with TwinlogRun(text, tmp_path) as run:
        await eventually(lambda: "SAME_CLUSTER" in run.log.read_text())
        await eventually(lambda: '"cluster": "gone"' in run.log.read_text())

        async def says_who_is_away() -> bool:
            status = await twinlog("status", "--config", str(run.file), "-o", "json")
            assert status.returncode == 0, status
            clusters = json.loads(status.stdout)["clusters"]
            seen = {cluster["alias"]: set(cluster["seen_by"].values()) for cluster in clusters}
            assert seen == {"here": {True}, "same": {True}, "gone": {False}}
            return True

        assert await eventually(says_who_is_away)
        assert await run.stop() == 0
