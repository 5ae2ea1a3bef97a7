"""Random lives of the whole system: `python -m simulated.simulate --seeds 100 [--from 1] [--two-files]`.

One seed decides everything: what applications do, what breaks, and when. What has to hold: after the last
fault everything is copied, in order, once; groups are not ahead; nobody asks brokers without a pause.
"""

import argparse
import asyncio
import gc
import os
import random
import resource
import sys
import tempfile
import traceback
from itertools import groupby
from pathlib import Path
from random import Random

from simulated.both_ways_rig import start_both
from simulated.histories import DEFAULT, IDENTITY
from simulated.lives import TOPICS, Life, Setting
from simulated.merged_life import MergedLife
from simulated.two_file_life import NAMES, TwoFileLife
from simulated.world import SERVICES, World, live
from twinlog.testing.broker.acls import Authorizer

_AGAIN = "cd tests; PYTHONHASHSEED=0 ../.venv/bin/python -m simulated.simulate --seeds 1 --from {}{}"
_FIRST = 0


def setting_of(seed: int) -> Setting:
    decided = Random(seed)
    nodes, has_same_names = decided.choice([1, 3]), decided.random() < 0.6
    is_translated = not has_same_names and decided.random() < 0.5
    return Setting(nodes, has_same_names, is_translated, has_same_names and decided.random() < 0.3)


def setting_of_two_files(seed: int) -> Setting:
    return Setting(1, True, Random(seed).random() < 0.25, True, True)


async def _begin(world: World, setting: Setting) -> None:
    for applications in world.on.values():
        applications.cluster.authorizer = Authorizer(super_users=["User:ANONYMOUS"])
    for topic, count in TOPICS.items():
        for alias in "AB" if setting.is_both_ways else "A":
            world.on[alias].cluster.create_topic(topic, partition_count=count)
    if setting.has_two_files:
        start_both(world, *NAMES)
    else:
        world.start(*SERVICES)
    await world.until(lambda: all(world.on["B"].ends(setting.prefix + each) for each in TOPICS))
    world.on["B"].commit("locals", setting.prefix + "orders", {0: 0})


async def _is_lived(world: World, setting: Setting, seed: int, *, tells_digest: bool) -> bool:
    random.seed(seed)
    for alias, kafka in world.kafka.items():
        kafka.cluster.random.seed(f"{alias} {seed}")
    kind = MergedLife if setting.is_both_ways else Life
    life = (TwoFileLife if setting.has_two_files else kind)(world, setting, seed)
    try:
        await life.live()
    except BaseException:
        life.told.append(f"last request: {world.requests[-1]}")
        told = "\n".join(life.told)
        again = _AGAIN.format(seed, " --two-files" if setting.has_two_files else "")
        sys.stdout.write(f"{traceback.format_exc()}\n{told}\nseed {seed}; again: {again}\n")
        return False
    finally:
        if tells_digest:
            sys.stdout.write(f"{seed} {world.digest()}\n")
    return True


def lived(
    setting: Setting, seeds: list[int], *, tells_digest: bool = False, in_process: bool = False
) -> list[int]:
    """Those of the seeds in whose lives something does not hold. Each life begins in a copy of the process in
    which the services have started. `in_process`: one seed, without a copy."""
    failed: list[int] = []

    async def lives() -> None:
        with tempfile.TemporaryDirectory() as directory:
            file = IDENTITY if setting.has_same_names else DEFAULT
            if setting.has_two_files:
                file += "topics = orders.*\noffset.lag.max = 5\n"
            elif setting.is_both_ways:
                file += "B->A.enabled = true\nB->A.topics = orders.*\noffset.lag.max = 5\n"
            if setting.is_translated:
                file += "twinlog.offsets = translated\n"
            async with World(Path(directory), file, node_count=setting.node_count) as world:
                await _begin(world, setting)
                gc.freeze()
                for seed in seeds:
                    sys.stdout.flush()
                    loop, child = asyncio.get_running_loop(), 0 if in_process else os.fork()
                    if child:
                        if os.waitpid(child, 0)[1]:  # noqa: ASYNC222 - nothing else happens
                            failed.append(seed)
                        continue
                    asyncio._set_running_loop(loop)  # noqa: SLF001 - it goes on in the copy
                    is_lived = await _is_lived(world, setting, seed, tells_digest=tells_digest)
                    if not in_process:
                        sys.stdout.flush()
                        os._exit(not is_lived)

    live(lives())
    return failed


def _lived_apart(setting: Setting, seeds: list[int], *, tells_digest: bool) -> list[int]:
    """As `lived`, in a copy of this process: what other settings leave in memory changes nothing."""
    sys.stdout.flush()
    here, there = os.pipe()
    child = os.fork()
    if not child:
        failed = lived(setting, seeds, tells_digest=tells_digest)
        os.write(there, " ".join(map(str, failed)).encode())
        os._exit(0)
    os.close(there)
    with os.fdopen(here) as told:
        failed = [int(seed) for seed in told.read().split()]
    return failed if os.waitpid(child, 0)[1] == 0 else seeds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--from", type=int, default=1, dest="first")
    parser.add_argument("--digests", action="store_true", help="tell what shows that lives are the same")
    parser.add_argument("--two-files", action="store_true", help="lives of a file for each direction")
    asked = parser.parse_args()
    setting_of_seed = setting_of_two_files if asked.two_files else setting_of
    gc.disable()  # It takes a third of the time, at moments that differ.
    lived(setting_of_seed(_FIRST), [_FIRST], in_process=True)  # Loads what each life needs.
    failed: list[int] = []
    seeds = sorted(range(asked.first, asked.first + asked.seeds), key=setting_of_seed)
    for setting, alike in groupby(seeds, key=setting_of_seed):
        failed += _lived_apart(setting, list(alike), tells_digest=asked.digests)
    seconds = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    sys.stdout.write(
        f"{asked.seeds} lives, {seconds / asked.seeds:.2f} CPU seconds each, failed: {sorted(failed)}\n"
    )
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
