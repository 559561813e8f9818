"""Torc beside redis-py, each with servers of its own on this machine.

    pip install ./python[bench]
    python python/bench.py --kvd target/release/kvd

Rounds of the two alternate; figures are medians of rounds. Needs `redis-server`, or what --redis-server names.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torc

KEYS = [b"bench/%04d" % number for number in range(1000)]
VALUE = b"x" * 100
BATCH = 100
IN_FLIGHT = 64

#: Operations between two looks at the clock.
STEP = 2_000

#: Does so many operations, and knows nothing of time.
Work = Callable[[int], Any]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def process(*command: str) -> Iterator[None]:
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        running.terminate()
        running.wait()


@contextmanager
def torc_nodes(kvd: str, nodes: int, directory: str) -> Iterator[list[str]]:
    first = 10_000 + free_port() % 20_000
    command = [kvd, "playground", "--nodes", str(nodes), "--data-dir", os.path.join(directory, f"torc-{nodes}")]
    for offset, service in [(0, "grpc"), (100, "http"), (200, "resp")]:
        command += [f"--first-{service}-port", str(first + offset)]
    with process(*command):
        endpoints = [f"127.0.0.1:{first + number}" for number in range(nodes)]
        torc.connect(endpoints, timeout=30).put_many((key, VALUE) for key in KEYS)
        yield endpoints


@contextmanager
def redis_server(program: str, directory: str) -> Iterator[int]:
    import redis

    port = free_port()
    with process(program, "--port", str(port), "--save", "", "--dir", directory):
        client = redis.Redis(port=port)
        while True:
            try:
                client.mset({key: VALUE for key in KEYS})
                break
            except redis.exceptions.ConnectionError:
                time.sleep(0.05)
        client.close()
        yield port


def rate(work: Work, seconds: float) -> float:
    """Operations per second, of at least so many seconds."""
    count, began = 0, time.perf_counter()
    while True:
        work(STEP)
        count += STEP
        passed = time.perf_counter() - began
        if passed >= seconds:
            return count / passed


def compare(name: str, torc_work: Work, redis_work: Work, rounds: int, seconds: float) -> None:
    pairs = []
    for work in (torc_work, redis_work):
        work(STEP)
    for _ in range(rounds):
        pairs.append((rate(torc_work, seconds), rate(redis_work, seconds)))
    ours, theirs = (statistics.median(side) for side in zip(*pairs))
    ratio = statistics.median(one / other for one, other in pairs)
    print(f"{name:<40}{ours:>12,.0f}{theirs:>12,.0f}{ratio:>8.2f}")


def sync_get(get: Callable[[bytes], Any]) -> Work:
    def work(count: int) -> None:
        for number in range(count):
            get(KEYS[number % len(KEYS)])

    return work


def sync_batches(get_many: Callable[[list[bytes]], Any]) -> Work:
    """Counted in keys."""

    def work(count: int) -> None:
        for number in range(count // BATCH):
            start = number * BATCH % len(KEYS)
            get_many(KEYS[start : start + BATCH])

    return work


def aio_get(loop: asyncio.AbstractEventLoop, get: Callable[[bytes], Awaitable[Any]]) -> Work:
    async def worker(keys: Iterator[bytes]) -> None:
        for key in keys:
            await get(key)

    async def run(count: int) -> None:
        keys = iter([KEYS[number % len(KEYS)] for number in range(count)])
        await asyncio.gather(*(worker(keys) for _ in range(IN_FLIGHT)))

    return lambda count: loop.run_until_complete(run(count))


def run(nodes: int, endpoints: list[str], redis_port: int, rounds: int, seconds: float) -> None:
    import redis
    import redis.asyncio

    loop = asyncio.new_event_loop()
    ours, theirs = torc.connect(endpoints), redis.Redis(port=redis_port)
    aio_ours = loop.run_until_complete(torc.aio.connect(endpoints))
    aio_theirs = redis.asyncio.Redis(port=redis_port, max_connections=IN_FLIGHT)
    print(f"{f'{nodes} node(s), per second':<40}{'torc':>12}{'redis-py':>12}{'ratio':>8}")

    def measured(name: str, torc_work: Work, redis_work: Work) -> None:
        compare(name, torc_work, redis_work, rounds, seconds)

    measured("get", sync_get(ours.get), sync_get(theirs.get))
    measured("put / set (torc: on disk)", sync_get(lambda key: ours.put(key, VALUE)), sync_get(lambda key: theirs.set(key, VALUE)))
    measured(f"keys by get_many({BATCH}) / mget", sync_batches(ours.get_many), sync_batches(theirs.mget))
    measured(f"get, asyncio, {IN_FLIGHT} in flight", aio_get(loop, aio_ours.get), aio_get(loop, aio_theirs.get))
    loop.run_until_complete(aio_ours.close())
    loop.run_until_complete(aio_theirs.aclose())
    ours.close()
    theirs.close()
    loop.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvd", required=True, help="an optimised kvd")
    parser.add_argument("--redis-server", default=shutil.which("redis-server"))
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    given = parser.parse_args()
    if given.redis_server is None:
        parser.error("no redis-server: install it, or name one by --redis-server")
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as directory:
        for nodes in given.nodes:
            with redis_server(given.redis_server, directory) as port, torc_nodes(given.kvd, nodes, directory) as endpoints:
                run(nodes, endpoints, port, given.rounds, given.seconds)


if __name__ == "__main__":
    main()
