"""`twinlog failover run` on a terminal, against a service that only plans."""

import asyncio
import os
import pty
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress

import grpc
import pytest

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2_grpc as pb2_grpc
from twinlog.api.common.v1 import types_pb2

PLAN = pb2.MovePlan(flow=types_pb2.Flow(source="A", target="B"), from_cluster="A", to_cluster="B")


class OnlyPlans(pb2_grpc.CheckpointServiceServicer):
    def __init__(self) -> None:
        self.runs = 0

    async def PlanMove(  # noqa: N802
        self, request: pb2.PlanMoveRequest, context: object
    ) -> AsyncIterator[pb2.PlanMoveResponse]:
        yield pb2.PlanMoveResponse(plan=PLAN)

    async def RunFailover(  # noqa: N802
        self, request: pb2.RunFailoverRequest, context: object
    ) -> AsyncIterator[pb2.RunFailoverResponse]:
        self.runs += 1
        yield pb2.RunFailoverResponse(report=pb2.MoveReport(run_id="r", plan=PLAN))


def when_asked(port: int, answer: bytes | signal.Signals) -> tuple[int, str]:
    """Answer the question of the command, or send it a signal; its exit code, and what it showed."""
    terminal, inside = pty.openpty()
    command = ("failover", "run", "A->B", "--endpoint", f"checkpoint=127.0.0.1:{port}")
    process = subprocess.Popen(
        [sys.executable, "-m", "twinlog", *command], stdin=inside, stdout=inside, stderr=inside
    )
    os.close(inside)
    shown = b""
    try:
        while b"[y/N]" not in shown:
            shown += os.read(terminal, 4096)
        if isinstance(answer, bytes):
            os.write(terminal, answer)
        else:
            interrupted(process, answer)
        code = process.wait(timeout=60)
        shown += os.read(terminal, 4096)
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    return code, shown.decode()


def interrupted(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Python misses a signal that comes right before it waits for input: then a second one is needed."""
    process.send_signal(number)
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=5)
    if process.poll() is None:
        process.send_signal(number)


@pytest.mark.parametrize(("answer", "code", "runs"), [(b"y\n", 0, 1), (b"n\n", 1, 0), (signal.SIGINT, 1, 0)])
async def test_the_question_is_answered_or_left_with_ctrl_c(
    answer: bytes | signal.Signals, code: int, runs: int
) -> None:
    service = OnlyPlans()  # type: ignore[abstract]  # the others answer UNIMPLEMENTED
    server = grpc.aio.server()
    pb2_grpc.add_CheckpointServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        ended, shown = await asyncio.to_thread(when_asked, port, answer)
    finally:
        await server.stop(None)
    assert "Move 0 groups from A to B?" in shown
    assert (ended, service.runs) == (code, runs)
