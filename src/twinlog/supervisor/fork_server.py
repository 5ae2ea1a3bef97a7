"""A process that has loaded the services' modules, and forks a service whenever it is asked to.

    python -m twinlog.supervisor.fork_server DESCRIPTOR

Four Python processes that load the same libraries take three seconds of a core and 80 MB more than four
forks of one that has loaded them. What it forks is a guard (`twinlog.local.processes.guard`), and that forks
the service, which then runs as `python -m MODULE` would: the same arguments, the same line in a list of
processes.

Invariants:
- here nothing starts a thread or opens a socket but the one over which orders come. It ends with that socket,
  and not by a signal that a whole group of processes gets: its services would be killed in the middle of
  their drain;
- an order that cannot be carried out is answered by `!` and errno over its status pipe, and ends nothing
  else: the services that run already live as long as this process does.
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
"""With each order: lifeline, status and end of the guard, and where the service writes."""
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
    """Serve until the other end is gone. In a service that was forked: what that is to run."""
    orders = socket.socket(fileno=int(arguments[0]))
    orders.set_inheritable(False)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    # Nobody waits for the guards: their services' exit codes come over a pipe.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Not in the command line, where a service is looked for by its module.
    for module in json.loads(orders.recv(MAX_ORDER_BYTES)):
        importlib.import_module(f"{module}.app")
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208 (as the guard's: no need of pathlib)
        sys.stderr.write("fork_server: a module has started a thread: services start without it\n")
        return None
    # A full collection in a service then looks at what that made, and leaves shared memory shared.
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
    """Fork, where the order is whole and somebody still waits for it. True in the fork."""
    if len(descriptors) < DESCRIPTORS:
        # This process has no room for more descriptors: closing those that came tells who waits.
        return False
    lifeline, status = descriptors[:2]
    if _is_given_up(lifeline):
        return False
    try:
        return os.fork() == 0
    except OSError as error:
        # A limit of processes or memory: the next order may find room again.
        with contextlib.suppress(OSError):
            os.write(status, b"!%d\n" % (error.errno or errno.EAGAIN))
        return False


def _is_given_up(lifeline: int) -> bool:
    """Whether who gave the order has closed its end, and starts the service in another way by now."""
    look = select.poll()
    look.register(lifeline, 0)
    return bool(look.poll(0))


def _guard(order: Order, lifeline: int, status: int, end: int, output: int) -> None:
    """In the fork: guard another fork to its end, and leave. Returns in that other one only."""
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
    # Says to who gave the order that the service runs.
    os.close(status)


def _become_a_program(order: Order) -> None:
    """Do what the start of an interpreter does, and the fork of one has not done."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    sys.argv = [order.module, *order.arguments]
    show_command_line([sys.executable, "-m", order.module, *order.arguments])


if __name__ == "__main__":
    # Read when gRPC is loaded: forks begin before anybody uses it, and it would comment on each.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    forked = main(sys.argv[1:])
    if forked is not None:
        runpy.run_module(forked.module, run_name="__main__", alter_sys=True)
