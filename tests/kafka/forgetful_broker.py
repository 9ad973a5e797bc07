"""A broker that says for a while that the cluster has no brokers, as an only one does when it shuts down.

librdkafka then drops the one that it knows. It should turn to `bootstrap.servers` again, and now and then
does not, when its threads meet in an unlucky order. With `metadata.recovery.strategy` none it never does.

Between a client and a real broker: it passes everything on, and where answers name the broker's address it
puts its own, or nobody. It can also refuse to tell offsets, as a broker does that is only starting.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress

_LIST_OFFSETS = 2
_METADATA = 3
_FIND_COORDINATOR = 10
_FIRST_FLEXIBLE = {_LIST_OFFSETS: 6, _METADATA: 9}


class ForgetfulBroker:
    """Listens on the loopback address; `bootstrap_servers` is for clients."""

    def __init__(self, servers: str) -> None:
        host, _, port = servers.partition(":")
        self._behind = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.bootstrap_servers = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.knows_brokers = True
        self.denied = 0
        """How many answers said that there are no brokers."""
        self.refusals: list[int] = []
        """The error codes of the next answers about offsets; each is for every partition in its answer."""
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, name="forgetful-broker", daemon=True).start()

    def close(self) -> None:
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self._behind)
                self._sockets += (client, broker)
                asked: dict[bytes, tuple[int, int]] = {}
                for source, sink, is_answer in ((client, broker, False), (broker, client, True)):
                    threading.Thread(
                        target=self._pass_on, args=(source, sink, is_answer, asked), daemon=True
                    ).start()

    def _pass_on(
        self,
        source: socket.socket,
        sink: socket.socket,
        is_answer: bool,
        asked: dict[bytes, tuple[int, int]],
    ) -> None:
        with suppress(OSError), source.makefile("rb") as stream:
            while len(size := stream.read(4)) == 4:
                frame = stream.read(struct.unpack(">i", size)[0])
                if not is_answer:
                    kind, version = struct.unpack(">hh", frame[:4])
                    if kind in (_LIST_OFFSETS, _METADATA, _FIND_COORDINATOR):
                        asked[frame[4:8]] = (kind, version)
                elif frame[:4] in asked:
                    frame = self._changed(frame, *asked.pop(frame[:4]))
                sink.sendall(struct.pack(">i", len(frame)) + frame)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _changed(self, frame: bytes, kind: int, version: int) -> bytes:
        if kind == _LIST_OFFSETS:
            return self._refused(frame, version, self.refusals.pop(0)) if self.refusals else frame
        own = struct.pack(">i", int(self.bootstrap_servers.rpartition(":")[2]))
        frame = frame.replace(struct.pack(">i", self._behind[1]), own)
        return (
            self._without_brokers(frame, version) if kind == _METADATA and not self.knows_brokers else frame
        )

    def _without_brokers(self, frame: bytes, version: int) -> bytes:
        """It begins: number of the question, no tags, throttling, brokers."""
        assert version >= _FIRST_FLEXIBLE[_METADATA], "this reads the newer form of metadata only"
        first = at = 4 + 1 + 4
        count, at = frame[at] - 1, at + 1
        for _ in range(count):
            at += 4  # its id
            at += max(frame[at], 1)  # host; lengths are one too high, so that zero is null
            at += 4  # port
            at += max(frame[at], 1)  # rack
            assert frame[at] == 0, "a broker with tags"
            at += 1
        self.denied += 1
        return frame[:first] + b"\x01" + frame[at:]

    def _refused(self, frame: bytes, version: int, code: int) -> bytes:
        """It is: number of the question, no tags, throttling, topics with their partitions."""
        assert version >= _FIRST_FLEXIBLE[_LIST_OFFSETS], "this reads the newer form of offsets only"
        changed, at = bytearray(frame), 4 + 1 + 4
        topics, at = frame[at] - 1, at + 1
        for _ in range(topics):
            at += frame[at]  # name; lengths are one too high
            partitions, at = frame[at] - 1, at + 1
            for _ in range(partitions):
                changed[at + 4 : at + 6] = struct.pack(">h", code)
                changed[at + 14 : at + 22] = struct.pack(">q", -1)
                at += 4 + 2 + 8 + 8 + 4 + 1  # its number, error, time, offset, epoch of its leader, no tags
            at += 1
        return bytes(changed)
