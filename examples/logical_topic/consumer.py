"""Reads `orders` and every remote copy of it as one topic, until it is interrupted or has read COUNT records.

python examples/logical_topic/consumer.py HOST:PORT [COUNT]
"""
# ruff: noqa: INP001

import asyncio
import contextlib
import sys

from twinlog.client import LogicalConsumer


async def main(bootstrap_servers: str, count: int | None) -> None:
    properties = {"bootstrap.servers": bootstrap_servers}
    async with LogicalConsumer(properties, group="billing", topic="orders", refresh_seconds=2) as consumer:
        done = 0
        while count is None or done < count:
            for record in await consumer.poll(max_wait_seconds=1):
                sys.stdout.write(f"from {record.origin or 'here'}: {(record.value or b'').decode()}\n")
                sys.stdout.flush()
                done += 1
            await consumer.commit()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    # Ctrl-C is how it ends: what was read and not committed is read again.
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None))
