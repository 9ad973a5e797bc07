"""A writer of Spark's behind a join with a DataFrame, in a client that is killed."""

from __future__ import annotations

import json
import signal
from collections import Counter
from functools import cache, partial
from pathlib import Path
from urllib.parse import unquote, urlparse

import psutil
import pytest
from confluent_kafka import Producer
from pyarrow import parquet
from single import App
from waiting import wait_until

from millstream.broker import EmbeddedKafka

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def rows_in(directory: Path) -> list[dict[str, object]]:
    """What readers of Spark's find in a directory that its file sink has written: the files that it lists."""
    found: set[str] = set()
    for log in (directory / "_spark_metadata").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            found.add(unquote(urlparse(json.loads(line)["path"]).path))
    return [row for path in sorted(found) for row in _read(path)]


@cache
def _read(path: str) -> list[dict[str, object]]:
    return parquet.read_table(path, partitioning=None).to_pylist()


def _has_more_than(directory: Path, count: int) -> bool:
    return len(rows_in(directory)) > count


def test_kill_9_leaves_each_result_once_in_files(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Exactly once from topic to files, while the table that is joined changes between the lives."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 1})
    kafka.create_topic("frames-numbers", 2)
    priced = tmp_path / "priced"
    (tmp_path / "prices").mkdir()
    arguments = (kafka.bootstrap_servers, "frames-app", "frames-numbers", str(tmp_path))
    expected: Counter[str] = Counter()

    def prices(of_a: int) -> None:
        lines = [{"item": "a", "price": of_a}, {"item": "b", "price": 7}]
        (tmp_path / "prices" / "all.json").write_text("\n".join(map(json.dumps, lines)))

    def produce(count: int) -> None:
        for number in range(len(expected), len(expected) + count):
            expected[f"n{number}"] = 1
            producer.produce("frames-numbers", f"n{number}".encode(), "ab"[number % 2].encode())
        assert producer.flush(30) == 0

    for life in range(2):
        prices(of_a=life)
        app = App(*arguments, log=tmp_path / "app.log", program="frames_app.py")
        assert app.next_line() == "RUNNING"
        before = len(rows_in(priced)) if life else 0
        produce(200)
        wait_until(partial(_has_more_than, priced, before), "it writes", 60)
        children = app.children()
        produce(200)
        app.process.send_signal(signal.SIGKILL)
        app.process.wait(10)
        assert not psutil.wait_procs(children, timeout=10)[1]
        assert len(rows_in(priced)) < len(expected), "it was done before it was killed"

    prices(of_a=2)
    app = App(*arguments, log=tmp_path / "app.log", program="frames_app.py")
    assert app.next_line() == "RUNNING"
    wait_until(lambda: len(rows_in(priced)) >= len(expected), "all numbers are written", 120)
    produce(2)
    wait_until(lambda: len(rows_in(priced)) >= len(expected), "and what comes later", 60)
    rows = rows_in(priced)
    assert Counter(row["number"] for row in rows) == expected
    assert len({(row["partition"], row["offset"]) for row in rows}) == len(rows)
    assert {row["price"] for row in rows} <= {0, 1, 2, 7}
    last = {row["number"]: row["price"] for row in rows}
    assert (last["n800"], last["n801"]) == (2, 7)
    assert app.process.stdin is not None
    app.process.stdin.close()
    assert app.process.wait(30) == 0
