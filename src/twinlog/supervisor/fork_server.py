"""A process that has loaded the services' modules, and forks a service on each order.

    python -m twinlog.supervisor.fork_server DESCRIPTOR

Four Python processes that load the same libraries take three seconds of a core and 80 MB more than four
forks of one loaded process. It forks a guard (`twinlog.local.processes.guard`), and the guard forks the
service, which then looks like `python -m MODULE`: the same arguments, the same line in a list of processes.

Invariants:
- it starts no thread and opens no socket but the one for orders. It ends with that socket, and not by a
  signal to a whole group of processes, which would kill its services in the middle of their drain;
- a failed order is answered by `!` and errno over its status pipe, and ends nothing else: running services
  live as long as this process does.
"""

import contextlib
import errno
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from twinlog.local.processes.guard import guard
from twinlog.supervisor.command_line import show_command_line

MODULE = "twinlog.supervisor.fork_server"
READY = b"ready"
DESCRIPTORS = 4
"""Sent with each order: lifeline, status and end of the guard, and the service's output."""
MAX_ORDER_BYTES = 1 << 17
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Order:
    """A service to fork."""

    module: str
    arguments: Sequence[str]

    def encoded(self) -> bytes:
        return json.dumps([self.module, *self.arguments]).encode()

    @classmethod
    def decoded(cls, message: bytes) -> "Order":
        module, *arguments = json.loads(message)
        return cls(module, arguments)


def main(arguments: Sequence[str]) -> Order | None:
    """Serve until the other end is gone. In a forked service, return the program to run."""
    orders = socket.socket(fileno=int(arguments[0]))
    orders.set_inheritable(False)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    # Nobody waits for the guards: their services' exit codes come over a pipe.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Not on the command line, where others find a service by its module.
    for module in json.loads(orders.recv(MAX_ORDER_BYTES)):
        importlib.import_module(f"{module}.app")
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208 (as the guard's: no need of pathlib)
        sys.stderr.write("fork_server: a module has started a thread: services start without it\n")
        return None
    # Later collections in a service then skip these objects and leave shared memory shared.
    gc.collect()
    gc.freeze()
    orders.send(READY)
    while True:
        message, descriptors, _, _ = socket.recv_fds(orders, MAX_ORDER_BYTES, DESCRIPTORS)
        if not message:
            return None
        if _forked(descriptors):
            orders.close()
            order = Order.decoded(message)
            _guard(order, *descriptors)
            return order
        for descriptor in descriptors:
            os.close(descriptor)


def _forked(descriptors: Sequence[int]) -> bool:
    """Fork if the order is complete and its sender still waits. True in the fork."""
    if len(descriptors) < DESCRIPTORS:
        # This process has no descriptors left: closing the received ones tells the sender.
        return False
    lifeline, status = descriptors[:2]
    if _is_given_up(lifeline):
        return False
    try:
        return os.fork() == 0
    except OSError as error:
        # A limit of processes or memory: the next order may succeed.
        with contextlib.suppress(OSError):
            os.write(status, b"!%d\n" % (error.errno or errno.EAGAIN))
        return False


def _is_given_up(lifeline: int) -> bool:
    """Whether the order's sender has closed its end and starts the service in another way."""
    look = select.poll()
    look.register(lifeline, 0)
    return bool(look.poll(0))


def _guard(order: Order, lifeline: int, status: int, end: int, output: int) -> None:
    """In the fork: guard a second fork to its end, and exit. Returns only in the second fork."""
    os.setsid()
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    show_command_line([sys.executable, "-m", MODULE, f"guard of {order.module}"])
    exit_code = guard(lifeline, status, end)
    if exit_code is not None:
        with contextlib.suppress(OSError):
            os.write(end, b"%d\n" % exit_code)
        os._exit(exit_code)
    _become_a_program(order)
    # Tells the order's sender that the service runs.
    os.close(status)


def _become_a_program(order: Order) -> None:
    """Do what an interpreter does at its start and a fork skips."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    sys.argv = [order.module, *order.arguments]
    show_command_line([sys.executable, "-m", order.module, *order.arguments])


if __name__ == "__main__":
    # gRPC reads this when it is loaded: forks happen before its first use, and it would log a warning for
    # each.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    forked = main(sys.argv[1:])
    if forked is not None:
        runpy.run_module(forked.module, run_name="__main__", alter_sys=True)
