"""What is left of a history, as text that can be compared: what MirrorMaker 2 and applications read, byte for
byte, and Twinlog's own records by their meaning.

Left out is what time decides: the times of syncs, checkpoints and heartbeats, repetitions of one of them, and
the offsets at which they stand.
"""

import json
import re
from collections.abc import Iterator

from simulated.clients import Applications, Seen
from simulated.world import World

_BY_KEY = re.compile(r"mm2-(offsets|configsync|failover|sync-history)\..*\.internal")
_IN_ORDER = re.compile(r"mm2-offset-syncs\..*\.internal|.*checkpoints\.internal")
_HEARTBEATS = re.compile(r"(.*\.)?heartbeats")
_OWN_GROUP = re.compile(r"twinlog-.*")
_CHANGING = re.compile(
    r"(run|chain|chain_before|chains_there|instance|process|worker|owner|host|pid|token|run_id|id|at|_ms|time|topic_id|claim|by|epoch|producer_.*)"
    r"|.*(_id|_ms|_at|_epoch|time)"
)
"""Fields that differ with every process, or with time."""


def record(world: World) -> str:
    """One line for each fact, in a fixed order."""
    return "".join(
        f"{line}\n"
        for alias, applications in sorted(world.on.items())
        for line in _cluster(alias, applications)
    )


def _cluster(alias: str, applications: Applications) -> Iterator[str]:
    for name, topic in sorted(applications.cluster.topics.items()):
        if topic.is_internal:
            continue
        configs = " ".join(f"{key}={value}" for key, value in sorted(topic.configs.items()))
        yield f"{alias} {name}: {len(topic.partitions)} partitions {configs}".rstrip()
        seen = applications.read(name)
        if _BY_KEY.fullmatch(name):
            yield from sorted(_newest(seen))
        elif _IN_ORDER.fullmatch(name):
            yield from _in_order(seen)
        elif _HEARTBEATS.fullmatch(name):
            yield from sorted({f"  {each.key!r}" for each in seen})
        else:
            for index, partition in enumerate(topic.partitions):
                yield f"  {index}: [{partition.log.start_offset}, {partition.log.end_offset})"
            yield from (_whole(each) for each in seen)
    for group_id, offsets in sorted(applications.cluster.groups.offsets.items()):
        if not _OWN_GROUP.fullmatch(group_id):
            for (topic_name, index), committed in sorted(offsets.items()):
                place = f"{topic_name}-{index} {committed.offset} {committed.metadata!r}"
                yield f"{alias} group {group_id}: {place}"


def _whole(seen: Seen) -> str:
    headers = f" {seen.headers!r}" if seen.headers else ""
    return f"  {seen.partition} {seen.offset} {seen.timestamp_ms} {seen.key!r} {seen.value!r}{headers}"


def _in_order(seen: list[Seen]) -> Iterator[str]:
    """Each key's values as they follow each other."""
    last: dict[bytes | None, bytes | None] = {}
    by_key: dict[bytes | None, list[str]] = {}
    for each in seen:
        if b"heartbeats" in (each.key or b""):
            continue
        if each.key not in last or last[each.key] != each.value:
            by_key.setdefault(each.key, []).append(f"  {each.key!r} {each.value!r}")
        last[each.key] = each.value
    for _, lines in sorted(by_key.items(), key=lambda item: item[0] or b""):
        yield from lines


def _newest(seen: list[Seen]) -> Iterator[str]:
    newest = {each.key: each.value for each in sorted(seen, key=lambda each: each.offset)}
    for key, value in newest.items():
        text = (key or b"").decode()
        if "TwinlogControl" in text and '"kind":"position"' not in text and '"kind":"copy"' not in text:
            continue  # Claims, ids and proofs: of processes, not of copies.
        if value is None or '"topic":"heartbeats"' in text:
            continue  # As compaction leaves it; how many heartbeats there are, time decides.
        yield f"  {text} {_meaning(text, value)}"


def _meaning(key: str, value: bytes) -> str:
    """Byte for byte where MirrorMaker 2 reads it."""
    if key.startswith('["MirrorSourceConnector"'):
        return value.decode()
    try:
        return json.dumps(_masked(json.loads(value)), sort_keys=True)
    except ValueError:
        return repr(value)


def _masked(told: object) -> object:
    if isinstance(told, dict):
        return {key: "*" if _CHANGING.fullmatch(key) else _masked(value) for key, value in told.items()}
    if isinstance(told, list):
        return [_masked(each) for each in told]
    return told
