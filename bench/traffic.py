"""Sends records at a given rate, and notes when each result arrives: two processes beside the contestants.

    python -m bench.traffic send SERVERS TOPIC BEFORE | read SERVERS TOPIC OUTPUT FORMAT PARTITIONS

The value of a record is `keep-N`, where N is the number of records that its key has had, BEFORE of them from
elsewhere. A map returns that number. A count returns how many records the key has had; since a cache or a
micro-batch merges updates, a record is out as soon as its number or a higher one is. Times come from the
clock that all processes of a machine share.
"""

from __future__ import annotations

import json
import os
import queue
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

__all__ = ["FORMATS", "latencies_ms", "main"]

KEYS = 20
PARTITIONS = 2
_QUIET = {"log_level": 0, "log.connection.close": False}
_PATIENCE_S = 40.0
FORMATS: Mapping[str, Callable[[bytes], int]] = {
    "map": lambda value: int(value[5:]),
    "long": lambda value: int.from_bytes(value, "big"),
    "text": int,
}


def latencies_ms(sent: list[tuple[str, int, float]], seen: Mapping[str, Mapping[str, float]]) -> list[float]:
    """How long each record took.

    Raises:
        ValueError: a record never came out.
    """
    try:
        return [(seen[key][str(number)] - at) * 1000 for key, number, at in sent]
    except KeyError as missing:
        raise ValueError(f"record {missing} never arrived") from None


class _Sender:
    """Sends at random moments, at a given rate, regardless of the results."""

    def __init__(self, servers: str, topic: str, before: int = 0) -> None:
        self._topic, self._before = topic, before
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, **_QUIET})
        self._sent_of: dict[str, int] = {}

    def send(self, rate: float, seconds: float, keys: int = KEYS) -> list[tuple[str, int, float]]:
        """Send for this time. Returns which records were sent, and when."""
        chance = random.Random(7)
        sent = []
        due = time.monotonic()
        end = due + seconds
        while due < end:
            time.sleep(max(0.0, due - time.monotonic()))
            sent.append(self.one(f"k{chance.randrange(keys)}"))
            due += chance.expovariate(rate)
        self._producer.flush(_PATIENCE_S)
        return sent

    def one(self, key: str) -> tuple[str, int, float]:
        number = self._sent_of[key] = self._sent_of.get(key, self._before) + 1
        at = time.monotonic()
        self._producer.produce(self._topic, b"keep-%d" % number, key)
        self._producer.poll(0)
        return key, number, at


class _Reader:
    """Notes when each number of a key was reached, from now on."""

    def __init__(self, servers: str, source: str, output: str, kind: str, partitions: int) -> None:
        self._number_of = FORMATS[kind]
        self._sender = _Sender(servers, source)
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"latency-{output}",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
                **_QUIET,
            }
        )
        places = [TopicPartition(output, number) for number in range(partitions)]
        for place in places:
            _, place.offset = self._consumer.get_watermark_offsets(place, timeout=_PATIENCE_S)
        self._consumer.assign(places)
        self._reached: dict[str, int] = {}
        self._seen: dict[str, dict[str, float]] = {}

    def look(self, timeout_s: float) -> None:
        """Take in the next record, if one comes in time."""
        message = self._consumer.poll(timeout_s)
        if message is None or message.error() is not None:
            return
        now = time.monotonic()
        key, reached = (message.key() or b"").decode(), self._number_of(message.value() or b"")
        seen = self._seen.setdefault(key, {})
        for number in range(self._reached.get(key, 0) + 1, reached + 1):
            seen[str(number)] = now
        self._reached[key] = max(reached, self._reached.get(key, 0))

    def until(self, numbers: Mapping[str, int], timeout_s: float) -> dict[str, dict[str, float]]:
        """Wait until all these numbers are seen. Returns when each was, and forgets them."""
        deadline = time.monotonic() + timeout_s
        while any(self._reached.get(key, 0) < number for key, number in numbers.items()):
            self.look(0.05)
            if time.monotonic() > deadline:
                late = sum(max(0, number - self._reached.get(key, 0)) for key, number in numbers.items())
                raise TimeoutError(f"{late} of {sum(numbers.values())} records have not arrived")
        seen, self._seen = self._seen, {}
        return seen

    def one_at_a_time(self, times: int) -> list[float]:
        """Send this many, each shortly after the previous result. Returns how long each took, in ms."""
        chance = random.Random(5)
        taken = []
        for _ in range(times):
            key, number, sent = self._sender.one(f"s{chance.randrange(KEYS)}")
            seen = self.until({key: number}, _PATIENCE_S)
            taken.append((seen[key][str(number)] - sent) * 1000)
            time.sleep(chance.uniform(0, 0.05))
        return taken


def main() -> None:
    """Do what the lines of JSON say, until there are no more."""
    role, servers, topic, *rest = sys.argv[1:]
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)  # the parent is gone

    threading.Thread(target=read, name="input", daemon=True).start()
    sender = _Sender(servers, topic, int(rest[0])) if role == "send" else None
    reader = _Reader(servers, topic, rest[0], rest[1], int(rest[2])) if role == "read" else None
    while True:
        try:
            what = json.loads(lines.get(timeout=None if sender else 0.0))
        except queue.Empty:
            assert reader is not None
            reader.look(0.02)
            continue
        answer: dict[str, Any]
        try:
            if sender is not None:
                answer = {"sent": sender.send(what["rate"], what["seconds"], what.get("keys", KEYS))}
            elif what["do"] == "singles":
                assert reader is not None
                answer = {"ms": reader.one_at_a_time(what["times"])}
            else:
                assert reader is not None
                answer = {"seen": reader.until(what["numbers"], what["timeout"])}
        except TimeoutError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
