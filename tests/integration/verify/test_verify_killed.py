"""A verification that is killed, by SIGKILL and as a whole, continues behind what it had proven."""

import asyncio
import signal
import sys
from pathlib import Path

from integration.verify.verify_rig import VerifyRig
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.testing.brokers import eventually, unique_name

PARTITIONS, COUNT, IN_BATCH = 12, 100, 50
SLOW = "25k"
"""About 10 s per partition: a machine that stalls for a minute has not proven all of them."""


async def test_what_was_proven_before_a_kill_is_not_read_again(mirror: VerifyRig, tmp_path: Path) -> None:
    topic = unique_name("killed")
    now_ms = SystemClock().now_ms() - 3_600_000
    records = [NewRecord(b"k", b"%05d" % number * 400, now_ms + number) for number in range(COUNT)]
    await mirror.topics(topic, partitions=PARTITIONS)
    batches = [
        (partition, Codec.NONE, records[begin : begin + IN_BATCH])
        for partition in range(PARTITIONS)
        for begin in range(0, COUNT, IN_BATCH)
    ]
    await mirror.write_source(topic, batches)
    await mirror.write_copy(topic, batches)
    for partition in range(PARTITIONS):
        await mirror.store_position(topic, COUNT, partition)
    state = tmp_path / "state"
    arguments = ("--topic", topic, "--parallel", "1", "--state", str(state))
    whole = await mirror.verify(topic, parallel=1)
    command = [sys.executable, "-m", "twinlog", "verify", f"{mirror.rig.a}->{mirror.rig.b}"]
    slow = ["--config", str(mirror.file()), *arguments, "--max-bytes-per-second", SLOW]
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, *slow, stdout=quiet, stderr=quiet)

    def proven() -> int:
        # A line without its end is not counted: it was half written.
        return sum(file.read_bytes().count(b"\n") for file in state.glob("*.jsonl"))

    try:
        await eventually(lambda: proven() >= 1, timeout_seconds=240)
    finally:
        process.send_signal(signal.SIGKILL)
        exit_code = await process.wait()
    assert exit_code == -signal.SIGKILL, "it was killed in the middle"
    before = proven()
    assert 1 <= before < PARTITIONS
    exit_code, report = await mirror.command(*arguments)
    assert (exit_code, report["verdict"]) == (0, "EQUAL"), report
    assert report["records"] == PARTITIONS * COUNT
    unread = sum(each["bytes"] == 0 for each in report["partitions"])
    assert unread == before
    assert report["bytes"] == whole["bytes"] * (PARTITIONS - before) // PARTITIONS
