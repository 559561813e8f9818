"""Count in a cluster from several threads: read, then write on the version read.

Run it beside `kvd playground`: python examples/counter.py 127.0.0.1:7401
"""

from __future__ import annotations

import sys
import threading

import torc


def add_one(client: torc.Client, key: bytes) -> None:
    """Add one exactly once, despite concurrent writers."""
    while True:
        found = client.get_versioned(key)
        try:
            if found is None:
                client.put(key, b"1", if_absent=True)
            else:
                client.put(key, b"%d" % (int(found.value) + 1), if_version=found.version)
        except torc.Conflict:
            continue  # Another thread was faster: read again.
        return


def main(endpoints: list[str]) -> None:
    with torc.connect(endpoints) as client:
        client.delete(b"counter")

        def work() -> None:
            for _ in range(25):
                add_one(client, b"counter")

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(f"counted to {int(client.get(b'counter') or b'0')}")


if __name__ == "__main__":
    main(sys.argv[1:] or ["127.0.0.1:7401"])
