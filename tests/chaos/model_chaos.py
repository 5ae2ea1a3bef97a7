"""Play histories of the model of preserved copies that the unit tests do not play: owners that crash, sleep,
wake up and take over.

    python tests/chaos/model_chaos.py --histories 1000000
    python tests/chaos/model_chaos.py --first 5611 --histories 1

A history is its seed, so one that fails is played again by it. Exit code 0 only if all end as they should.
"""

import argparse
import logging
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import structlog

sys.path.insert(0, str(Path(__file__).parents[1]))

from twinlog.config import OffsetsMode
from unit.source.preserved.test_preserved_owners import Schedule

AT_ONCE = 500
"""Seeds that one process plays before it tells."""


OWNERS: dict[str, dict[str, Any]] = {
    "owners": {},
    "owners, markers at the leader": {"at_leader": True},
    "strangers": {"strangers": True},
    "a marker that is written twice": {"repeated": True},
    "a target that loses records": {"truncated": True},
    "a target that loses records, markers at the leader": {"truncated": True, "at_leader": True},
    "a topic that is created again": {"recreated": True},
}


def _owners(mode: OffsetsMode, events: dict[str, Any], seed: int) -> None:
    usual = {"strangers": False, "recreated": False}
    Schedule(seed, mode, **(usual | events)).run()


KINDS: dict[str, Callable[[int], None]] = {
    f"{name}, {mode}": partial(_owners, mode, events)
    for name, events in OWNERS.items()
    for mode in (OffsetsMode.AUTO, OffsetsMode.PRESERVED)
}


def play(seeds: range) -> list[str]:
    """One history of each kind for each seed; what went wrong."""
    failures = []
    for seed in seeds:
        for kind, history in KINDS.items():
            try:
                history(seed)
            except AssertionError as error:
                failures.append(f"{kind}, seed {seed}: {error}")
    return failures


def keep_quiet() -> None:
    """What copies warn about is no news here."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def main() -> int:
    parser = argparse.ArgumentParser(description="Play many histories of the model of preserved copies.")
    parser.add_argument("--first", type=int, default=100_000, help="the first seed (default: %(default)s)")
    parser.add_argument("--histories", type=int, default=1_000_000, help="default: %(default)s")
    options = parser.parse_args()
    count = max(options.histories // len(KINDS), 1)
    last = options.first + count
    parts = [range(begin, min(begin + AT_ONCE, last)) for begin in range(options.first, last, AT_ONCE)]
    began, failed, played = time.monotonic(), 0, 0
    with ProcessPoolExecutor(initializer=keep_quiet) as workers:
        for part, failures in zip(parts, workers.map(play, parts), strict=True):
            failed += len(failures)
            played += len(part) * len(KINDS)
            for failure in failures:
                sys.stdout.write(f"{failure}\n")
            sys.stderr.write(f"{played:,} histories, {failed} wrong, {time.monotonic() - began:.0f} s\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
