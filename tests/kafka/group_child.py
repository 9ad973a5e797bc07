"""A simple group member; and, run as a program, one in a process of its own, for tests that kill or stop it.

The program prints one JSON line for each thing that it is told. Ends when its input ends.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from collections.abc import Iterable, Mapping

from millstream.config import StreamsConfig
from millstream.errors import StreamsException
from millstream.kafka.membership import KafkaMembership
from millstream.model import TopicPartition


class Client:
    """A `GroupMember` that says a JSON, deals partitions round, and remembers what it was told.

    Attributes:
        told: ("assigned" or "lost" or "failed", when, what) in order.
    """

    def __init__(self, name: str, topics: Mapping[str, int] | None = None) -> None:
        self.name = name
        self.topics = dict(topics or {})
        self.nonce = 0
        self.code = 0
        self.told: list[tuple[str, float, object]] = []
        self.threads: set[str] = set()
        self.seen_by_leader: dict[str, dict[str, object]] = {}
        self.hold = threading.Event()
        self.hold.set()

    def user_data(self) -> bytes:
        return json.dumps({"name": self.name, "nonce": self.nonce, "code": self.code}).encode()

    def lead(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        said = {member: json.loads(data) for member, data in members.items()}
        self.seen_by_leader = said
        code = max(one["code"] for one in said.values())
        names = sorted(said, key=lambda member: str(said[member]["name"]))
        parts = [(topic, number) for topic, count in sorted(self.topics.items()) for number in range(count)]
        dealt: dict[str, list[tuple[str, int]]] = {member: [] for member in said}
        for part, member in zip(parts, itertools.cycle(names), strict=False):
            dealt[member].append(part)
        nonces = {str(one["name"]): one["nonce"] for one in said.values()}
        return {
            member: json.dumps({"code": code, "parts": dealt[member], "nonces": nonces}).encode()
            for member in said
        }

    def partitions(self, assignment: bytes) -> Iterable[TopicPartition]:
        return [TopicPartition(*part) for part in json.loads(assignment)["parts"]]

    def assigned(self, assignment: bytes, generation: int) -> None:
        self._note("assigned", {**json.loads(assignment), "generation": generation})
        self.hold.wait(30)

    def lost(self, reason: str) -> None:
        self._note("lost", reason)

    def failed(self, error: StreamsException) -> None:
        self._note("failed", error)

    def tick(self) -> None: ...

    def _note(self, what: str, detail: object) -> None:
        self.threads.add(threading.current_thread().name)
        self.told.append((what, time.monotonic(), detail))

    def count(self, what: str) -> int:
        return sum(kind == what for kind, _, _ in self.told)

    @property
    def last(self) -> dict[str, object]:
        """The latest assignment, if the latest news is one."""
        if not self.told or self.told[-1][0] != "assigned":
            return {}
        detail = self.told[-1][2]
        assert isinstance(detail, dict)
        return detail

    def knows(self, *clients: Client) -> bool:
        """Whether its assignment was made by just these, with what they say now."""
        return self.last.get("nonces") == {client.name: client.nonce for client in clients}


class Talking(Client):
    """Says on its output what it is told."""

    def _note(self, what: str, detail: object) -> None:
        super()._note(what, detail)
        said = detail if isinstance(detail, dict) else str(detail)
        print(json.dumps({"what": what, "at": time.monotonic(), "detail": said}), flush=True)


def main() -> None:
    """Arguments: a JSON of configuration, the name, the process tag (or '')."""
    options, name, tag = sys.argv[1:4]
    config = StreamsConfig(json.loads(options))
    client = Talking(name)
    client_id = f"{config.application_id}-{name}"
    membership = KafkaMembership(config, client, ["lines"], client_id=client_id, process_tag=tag)
    membership.start()
    for line in sys.stdin:
        if line.strip() == "cpu":
            used = time.process_time()
            print(json.dumps({"what": "cpu", "at": time.monotonic(), "detail": used}), flush=True)
    membership.close(5)


if __name__ == "__main__":
    main()
