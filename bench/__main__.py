"""`python -m bench`: the command line, the tables on stdout, the JSON file in `bench/results`."""

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop
from rich.console import Console

from bench.comparing.comparison import Comparison, Part, Plan
from bench.comparing.idle import IdlePlan
from bench.comparing.latency import LatencyPlan
from bench.comparing.loads import LATENCY_LOADS, LOADS, chosen
from bench.comparing.results import Copier, to_json, write_results
from bench.comparing.stage import Display, open_stage
from bench.comparing.tables import all_tables, judge
from twinlog.errors import TwinlogError
from twinlog.machine import WorkDirectory

_RESULTS = Path(__file__).parent / "results"
_FILE_WIDTH = 240
_QUICK_SCALE = 0.1
_QUICK_LOADS = ("1kb-none", "100b-zstd", "tiny-batches")
_QUICK_LATENCY_LOADS = ("busy", "quiet")
_QUICK_COPIERS = (Copier.MM2, Copier.TWINLOG)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Twinlog beside the real MirrorMaker 2, on the same two brokers and loads. "
        "A full run takes about three quarters of an hour; nothing else should run on the machine.",
    )
    parser.add_argument(
        "--quick", action="store_true", help="small and few loads: a few minutes, figures of cold processes"
    )
    parser.add_argument(
        "--only", nargs="+", type=Part, choices=tuple(Part), metavar="PART", default=tuple(Part),
        help=f"what to measure: {', '.join(Part)} (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--copiers", nargs="+", type=Copier, choices=tuple(Copier), metavar="COPIER",
        help=f"who copies: {', '.join(Copier)} (default: all; with --quick {', '.join(_QUICK_COPIERS)})",
    )  # fmt: skip
    parser.add_argument(
        "--loads", nargs="+", metavar="LOAD", choices=tuple(load.name for load in LOADS),
        help=f"{', '.join(load.name for load in LOADS)} "
        f"(default: all; with --quick {', '.join(_QUICK_LOADS)})",
    )  # fmt: skip
    parser.add_argument(
        "--latency-loads", nargs="+", metavar="LOAD", choices=tuple(load.name for load in LATENCY_LOADS),
        help=f"{', '.join(load.name for load in LATENCY_LOADS)} "
        f"(default: all; with --quick {', '.join(_QUICK_LATENCY_LOADS)})",
    )  # fmt: skip
    parser.add_argument("--repeat", type=int, default=1, help="runs of each; medians are shown (default: 1)")
    parser.add_argument("--scale", type=float, help="records, as a multiple of a full run (default: 1)")
    parser.add_argument(
        "--batch-bytes", type=int, default=131_072,
        help="size on the wire of the batches that lie on the source (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, default=_RESULTS, help="directory of the JSON file")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    return parser


def plan_of(arguments: argparse.Namespace) -> Plan:
    """What the command line asks for."""
    quick = arguments.quick
    scale = arguments.scale or (_QUICK_SCALE if quick else 1.0)
    loads = chosen(LOADS, arguments.loads or (_QUICK_LOADS if quick else ()))
    return Plan(
        parts=frozenset(arguments.only),
        copiers=arguments.copiers or (_QUICK_COPIERS if quick else tuple(Copier)),
        loads=[load.scaled(scale) for load in loads],
        repeat=max(arguments.repeat, 1),
        batch_bytes=arguments.batch_bytes,
        broker_warm_up_seconds=5.0 if quick else 60.0,
        latency=LatencyPlan(
            loads=chosen(LATENCY_LOADS, arguments.latency_loads or (_QUICK_LATENCY_LOADS if quick else ())),
            warm_up_seconds=5.0 if quick else 40.0,
            measured_seconds=15.0 if quick else 60.0,
        ),
        idle=IdlePlan(settle_seconds=5.0 if quick else 30.0, measured_seconds=10.0 if quick else 60.0),
    )


async def _run(arguments: argparse.Namespace, work: Path) -> int:
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    display = Display()
    plan = plan_of(arguments)
    display.step("starting two clusters")
    async with open_stage() as stage:
        comparison = Comparison(stage, plan, work, display)
        try:
            await comparison.run()
        finally:
            _report(comparison, arguments, display)
    return 1 if comparison.results.failures else 0


def _report(comparison: Comparison, arguments: argparse.Namespace, display: Display) -> None:
    """Also of a run that was broken off: what was measured is kept."""
    results = comparison.results
    wide = arguments.markdown or not sys.stdout.isatty()
    console = Console(width=_FILE_WIDTH if wide else None)
    for table in all_tables(results, markdown=arguments.markdown):
        console.print(table)
    text = to_json(results, [goal._asdict() for goal in judge(results)])
    file = write_results(text, arguments.output, time.strftime("%Y-%m-%dT%H-%M-%S"))
    display.step(f"written to {file}")


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = _parser().parse_args(arguments)
    work = WorkDirectory("twinlog-bench-")
    try:
        status: int = uvloop.run(_run(parsed, work.path))
        return status
    except TwinlogError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    finally:
        work.remove()


if __name__ == "__main__":
    sys.exit(main())
