"""The script `twinlog` and `python -m twinlog`.

It imports little: importing the command line takes a moment, in which a signal must already end the process
as it does later.
"""

import os
import signal
import sys

_INTERRUPTED = 130


def main() -> None:
    """Run the command line. While it is imported, signals end the process silently: `run` and `start` with 0,
    because nothing has been started yet, other commands like an interrupt."""
    runs = sys.argv[1:2] in (["run"], ["start"])
    exit_code = 0 if runs else _INTERRUPTED
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if runs else (signal.SIGINT,):
        if signal.getsignal(number) is not signal.SIG_IGN:
            # Not by an exception: in the middle of an import it could be lost.
            signal.signal(number, lambda *_: os._exit(exit_code))
    from twinlog.cli import main as run_command_line

    if not runs and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_command_line()


if __name__ == "__main__":
    main()
