"""Store and look up the findings of many tasks in one event loop.

Run it beside `kvd playground`: python examples/crawl.py 127.0.0.1:7401
"""

from __future__ import annotations

import asyncio
import sys

import torc

PAGES = 500


async def visit(client: torc.aio.Client, page: int) -> bool:
    """Return whether this task is the first to reach the page."""
    try:
        await client.put(b"page/%d" % (page % 100), b"visited", if_absent=True, ttl=3600)
    except torc.Conflict:
        return False
    return True


async def main(endpoints: list[str]) -> None:
    async with await torc.aio.connect(endpoints) as client:
        firsts = await asyncio.gather(*(visit(client, page) for page in range(PAGES)))
        values = await client.get_many(b"page/%d" % page for page in range(101))
        known = sum(value is not None for value in values)
        print(f"{PAGES} visits, {sum(firsts)} first ones, {known} pages known")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or ["127.0.0.1:7401"]))
