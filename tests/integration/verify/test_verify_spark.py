"""`twinlog verify` on Spark: local and on a standalone cluster, killed in the middle, and resumed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from integration.standalone_spark import QUICK_JVM, SECRET, command_line
from integration.verify.verify_rig import COMMAND_SECONDS, VerifyRig, differences
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.local.processes.process import GuardedProcess
from twinlog.machine.java import spark_environment
from twinlog.testing.brokers import eventually, unique_name

COUNT, IN_BATCH = 6_000, 500
CLUSTER = {
    "twinlog.spark.conf.spark.authenticate.secret": SECRET,
    "twinlog.spark.conf.spark.executor.memory": "512m",
    "twinlog.spark.conf.spark.executor.extraJavaOptions": QUICK_JVM,
    "twinlog.spark.conf.spark.driver.host": "127.0.0.1",
}
"""Settings of who uses the standalone cluster."""


async def write_both(mirror: VerifyRig, topic: str, *, lost: int | None = None) -> None:
    """The same records on both sides, without one of them in the copy; transactions leave holes."""
    now_ms = SystemClock().now_ms() - 3_600_000
    records = [NewRecord(b"k%d" % (i % 9), b"value %d" % i, now_ms + i) for i in range(COUNT)]
    copied = [record for number, record in enumerate(records) if number != lost]
    await mirror.topics(topic, partitions=2)
    for partition in range(2):
        for begin in range(0, COUNT, IN_BATCH):
            await mirror.write_source(
                topic,
                [(partition, Codec.LZ4, records[begin : begin + IN_BATCH])],
                transactional_id=topic,
            )
    some = copied if lost is not None else records
    for partition, content in ((0, some), (1, records)):
        batches = [
            (partition, Codec.LZ4, content[begin : begin + IN_BATCH])
            for begin in range(0, len(content), IN_BATCH)
        ]
        await mirror.write_copy(topic, batches)
        await mirror.store_position(topic, COUNT + COUNT // IN_BATCH, partition)


async def test_parts_of_partitions_are_tasks_of_a_local_spark(mirror: VerifyRig, tmp_path: Path) -> None:
    topic = unique_name("sparked")
    await write_both(mirror, topic)
    rows = tmp_path / "parts.parquet"
    exit_code, report = await mirror.command(
        *("--topic", topic, "--spark-master", "local[2]", "--part-offsets", "2000", "--parquet", str(rows)),
        of_its_own=True,
    )
    assert (exit_code, report["verdict"]) == (0, "EQUAL"), report
    assert report["records"] == 2 * COUNT
    assert len(report["partitions"]) == 2
    assert [*rows.glob("*.parquet")]


async def test_a_standalone_cluster_names_one_lost_record_and_shows_no_secret(
    mirror: VerifyRig, standalone: tuple[str, list[GuardedProcess]], tmp_path: Path
) -> None:
    topic = unique_name("clustered")
    master, _ = standalone
    await write_both(mirror, topic, lost=4_321)
    mirror.rig.extra |= CLUSTER
    seen: set[str] = set()

    def look(_: Any) -> None:
        seen.update(command_line(each) for each in psutil.process_iter())

    report = await mirror.verify(topic, spark_master=master, part_offsets=2_000, on_progress=look)
    assert report["verdict"] == "DIFFERENT", report
    place = 4_321 + 4_321 // IN_BATCH
    assert differences(report) == [("MISSING", place, 4_321, 1)]
    assert not [line for line in seen if SECRET in line]


PARTITIONS, IN_PARTITION = 12, 100
IN_THE_LAST = 20 * IN_PARTITION
SLOW = "120k"
"""Rate of all tasks together: 20 s for the others, and minutes for the last one, so that it is not proven
when the first one of them is seen, however slow the machine is."""


async def test_a_verification_that_is_killed_on_a_cluster_continues_behind_what_is_proven(
    mirror: VerifyRig, standalone: tuple[str, list[GuardedProcess]], tmp_path: Path
) -> None:
    """By SIGKILL, and its JVM ends with it; of preserved copies."""
    topic, (master, _) = unique_name("killed"), standalone
    now_ms = SystemClock().now_ms() - 3_600_000
    records = [NewRecord(b"k", b"%05d" % number * 400, now_ms + number) for number in range(IN_PARTITION)]
    await mirror.topics(topic, partitions=PARTITIONS)
    batches = [(partition, Codec.NONE, records) for partition in range(PARTITIONS)]
    batches += [(PARTITIONS - 1, Codec.NONE, records)] * (IN_THE_LAST // IN_PARTITION - 1)
    await mirror.write_source(topic, batches)
    await mirror.write_copy(topic, batches)
    await mirror.promise_offsets(topic)
    for partition in range(PARTITIONS):
        count = IN_THE_LAST if partition == PARTITIONS - 1 else IN_PARTITION
        await mirror.store_position(topic, count, partition)
    mirror.rig.extra |= CLUSTER
    state = tmp_path / "state"
    arguments = ("--topic", topic, "--spark-master", master, "--state", str(state))
    command = [sys.executable, "-m", "twinlog", "verify", f"{mirror.rig.a}->{mirror.rig.b}", *arguments]
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *command,
        *("--config", str(mirror.file()), "--max-bytes-per-second", SLOW),
        stdout=quiet,
        stderr=quiet,
    )

    def proven() -> int:
        # A line without its end is not counted: it was half written.
        return sum(file.read_bytes().count(b"\n") for file in state.glob("*.jsonl"))

    try:
        await eventually(lambda: proven() >= 1, timeout_seconds=240)
    finally:
        started = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
        exit_code = await process.wait()
    assert exit_code == -signal.SIGKILL, "it was killed in the middle"
    await eventually(lambda: not any(each.is_running() for each in started))
    before = proven()
    assert 1 <= before < PARTITIONS
    exit_code, report = await mirror.command(*arguments, of_its_own=True)
    assert (exit_code, report["verdict"]) == (0, "EQUAL"), report
    assert report["records"] == (PARTITIONS - 1) * IN_PARTITION + IN_THE_LAST
    assert all(each["offsets_promised"] and each["same_offsets"] for each in report["partitions"])
    assert sum(each["bytes"] == 0 for each in report["partitions"]) == before, "those are not read again"


READ_ROWS = """
import json, sys
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
columns = "topic partition source_from source_to records verdict source_hash target_hash bytes".split()
rows = session.read.parquet(sys.argv[1]).select(*columns).collect()
print(json.dumps(sorted([*row] for row in rows)))
session.stop()
"""


def rows_of(directory: Path) -> list[tuple[Any, ...]]:
    """The rows of a Parquet directory, read by a Spark of its own."""
    command = [sys.executable, "-c", READ_ROWS, str(directory)]
    answer = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        env={**os.environ, **spark_environment()},
        check=True,
    )
    return [tuple(row) for row in json.loads(answer.stdout.splitlines()[-1])]


async def test_parts_that_are_proven_are_not_read_again(mirror: VerifyRig, tmp_path: Path) -> None:
    topic = unique_name("resumed")
    await write_both(mirror, topic)
    settings: dict[str, Any] = {
        "spark_master": "local[2]",
        "part_offsets": 2_000,
        "state_directory": str(tmp_path / "state"),
    }
    first = await mirror.verify(topic, parquet_directory=str(tmp_path / "first"), **settings)
    second = await mirror.verify(topic, parquet_directory=str(tmp_path / "second"), **settings)
    assert first["verdict"] == second["verdict"] == "EQUAL"
    assert second["records"] == first["records"] == 2 * COUNT
    assert second["bytes"] < first["bytes"]
    proven = await asyncio.to_thread(rows_of, tmp_path / "first")
    resumed = await asyncio.to_thread(rows_of, tmp_path / "second")
    assert len(proven) == len({row[:3] for row in proven}) > 2, "partitions were cut into parts"
    assert [row[:-1] for row in resumed] == [row[:-1] for row in proven], "with the hashes of what was kept"
    assert all(row[-3] and row[-2] for row in resumed)
