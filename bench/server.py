"""How fast stores answer over HTTP: two clients, each with half of a table; a `RemoteStore` queries one.

The clients are processes of their own: `python -m bench.server '{"application.id": …}'`.
"""

from __future__ import annotations

import json
import random
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

from bench.children import Child
from bench.figures import Goal, Progress, Report, Table, percentile
from bench.lab import Lab
from bench.stores import as_records, entries
from bench.words import produce

__all__ = ["measure"]

_PATIENCE = timedelta(seconds=120)
_THREADS = 4


def measure(lab: Lab, *, quick: bool, tell: Progress) -> Report:
    """Point reads that the queried client answers, those that it forwards, many keys, and ranges."""
    from millstream.server import RemoteStore

    count = 5_000 if quick else 50_000
    asked = 500 if quick else 5_000
    topic = lab.topic("table", 2)
    data = entries(count)
    produce(lab.bootstrap_servers, topic, as_records(data))
    ports = _free_ports(2)
    with ExitStack() as held:
        tell("starting two clients")
        for port in ports:
            held.enter_context(_Client(lab, topic, port))
        _wait_until_all_answer(ports, [key.decode() for key, _, _ in data[:50]])
        with RemoteStore(f"http://127.0.0.1:{ports[0]}", "table") as store:
            keys = [key.decode() for key, _, _ in random.Random(4).sample(data, asked)]
            here = [key for key in keys if _has(ports[0], key)]
            there = sorted(set(keys) - set(here))
            tell("point reads")
            rows = [
                ("get, answered by the queried client", _each(store.get, here)),
                ("get, forwarded to the other client", _each(store.get, there)),
                ("multi_get of 100, from both", _each(store.multi_get, _hundreds(keys))),
            ]
            shown = [
                (what, *(f"{percentile(taken, percent):.2f}" for percent in (50, 99, 100)), "")
                for what, taken in rows
            ]
            tell("several threads")
            together = _together(store.get, keys)
            shown.append((f"get, {_THREADS} threads", "", "", "", f"{together:,.0f} keys/s"))
            tell("a whole scan")
            begun = time.perf_counter()
            found = sum(1 for _ in store.all())
            assert found == count, f"{found} entries of {count}"
            scan = count / (time.perf_counter() - begun)
            shown.append(("all(), merged from both clients", "", "", "", f"{scan:,.0f} entries/s"))
    table = Table(
        f"Over HTTP, on loopback: a table of {count:,} entries, 2 partitions, on 2 clients",
        ("read", "p50 ms", "p99 ms", "longest ms", "rate"),
        tuple(shown),
        ("RemoteStore, over one kept-alive connection; the clients are processes of their own",),
    )
    goals = (Goal("get over HTTP, p50", percentile(rows[0][1], 50), 5.0, "ms"),)
    return Report("server", (table,), goals, {"ms": dict(rows), "together": together, "scan": scan})


def _each(read: Callable[[Any], Any], keys: Sequence[Any]) -> list[float]:
    """Milliseconds of each read."""
    taken = []
    for key in keys:
        begun = time.perf_counter()
        assert read(key) is not None
        taken.append((time.perf_counter() - begun) * 1000)
    return taken


def _hundreds(keys: Sequence[str]) -> list[Sequence[str]]:
    return [keys[start : start + 100] for start in range(0, len(keys), 100)]


def _together(read: Callable[[Any], Any], keys: Sequence[str]) -> float:
    """Keys per second, read by several threads."""
    threads = [
        threading.Thread(target=_each, args=(read, keys[number::_THREADS])) for number in range(_THREADS)
    ]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(keys) / (time.perf_counter() - begun)


def _has(port: int, key: str) -> bool:
    """Whether the client on this port has this key itself."""
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/v1/stores/table/keys/{key}?local=true", timeout=10
        ):
            return True
    except urllib.error.HTTPError:
        return False


def _wait_until_all_answer(ports: Sequence[int], keys: list[str]) -> None:
    """Wait until each client has a part of the table and answers for all of it."""
    from millstream import StreamsException
    from millstream.server import RemoteStore

    deadline = time.monotonic() + _PATIENCE.total_seconds()
    missing: object = "no answer"
    while time.monotonic() < deadline:
        try:
            found = []
            for port in ports:
                with RemoteStore(f"http://127.0.0.1:{port}", "table") as store:
                    found += store.multi_get(keys)
            if None not in found and all(any(_has(port, key) for key in keys) for port in ports):
                return
        except (StreamsException, OSError) as error:
            missing = error
        time.sleep(0.2)
    raise TimeoutError(f"the clients do not answer: {missing}")


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


class _Client:
    """One of the clients. It ends with this process, because its input then ends."""

    def __init__(self, lab: Lab, topic: str, port: int) -> None:
        options = {
            "application.id": "bench-server",
            "bootstrap.servers": lab.bootstrap_servers,
            "state.dir": str(lab.path("state")),
            "application.server": f"127.0.0.1:{port}",
            "query.server.enabled": True,
        }
        command = [sys.executable, "-m", "bench.server", json.dumps([topic, options])]
        self._child = Child("a client with a query server", command, lab.path("server-log"))

    def __enter__(self) -> _Client:
        return self

    def __exit__(self, *error: object) -> None:
        self._child.close()


def main(topic: str, options: Mapping[str, Any]) -> None:
    """Run a client until its input ends."""
    from millstream import Consumed, KafkaStreams, Materialized, Serdes, StreamsBuilder

    builder = StreamsBuilder()
    builder.table(topic, Consumed.with_(Serdes.string(), Serdes.long()), Materialized.as_("table"))
    with KafkaStreams(builder.build(), options) as streams:
        streams.wait_until_running(_PATIENCE)
        sys.stdin.read()


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
