"""Bytes of every serde, good ones and odd ones, and what comes of them when they are damaged."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

from millstream import Serde, Serdes
from millstream.registry.http import RegistryServer
from millstream.registry.registry_settings import RegistrySettings
from millstream.serdes.registered import bound, header_of
from millstream.serdes.windowed_serdes import WindowedSerdes

__all__ = ["EPOCH", "mangled", "seeds"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
UUID = "67c21fc8-5dd7-4b8c-8a5b-9e1e0d6ee2f4"
LATEST = 253_402_300_799_999
TIMES = [0, 1, 2**40, LATEST, LATEST + 1, -1, 2**63 - 1, -(2**63)]
SESSIONS = [
    e.to_bytes(8, "big", signed=True) + s.to_bytes(8, "big", signed=True) for e in TIMES for s in TIMES
]


def seeds(server: RegistryServer) -> dict[Serde, list[bytes]]:
    """Every serde without a format of the kernel's, with good bytes and odd ones."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}
    ordered: Any = Serdes.json_schema(json.dumps(schema))
    settings = RegistrySettings.of({"schema.registry.url": server.url})
    of_schema: Serde = bound(ordered, settings, "t")
    texts = ["", "a", "ü", "日本語", "🎉", "\ufeff", "\x00"]
    broken = [
        b"\xff",
        b"\xc3",
        b"a\xe2\x82",
        b"\xed\xa0\x80",
        b"\xf0\x9f\x8e",
        b"\xc0\x80",
        b"\xf4\x90\x80\x80z",
    ]
    windows = [t.to_bytes(8, "big", signed=True) for t in TIMES]
    longs = Serdes.list(Serdes.long())
    return {
        Serdes.string(): [*(each.encode() for each in texts), *broken],
        Serdes.bytes(): [b"", b"\x00\xff"],
        Serdes.uuid(): [UUID.encode(), UUID.upper().encode(), UUID.encode() + b"\n", b"\n" + UUID.encode()],
        **{
            make(): [bytes(size), b"\xff" * size, b"\x7f" + b"\xff" * (size - 1), b"\x80" + bytes(size - 1)]
            for make, size in ((Serdes.short, 2), (Serdes.integer, 4), (Serdes.long, 8))
        },
        Serdes.float(): [b"\x7f\xc0\0\0", b"\xff\x80\0\0", b"\x80\0\0\0", b"\0\0\0\1"],
        Serdes.double(): [
            b"\x7f\xf8" + bytes(6),
            b"\xff\xf0" + bytes(6),
            b"\x80" + bytes(7),
            bytes(7) + b"\1",
        ],
        Serdes.boolean(): [b"\0", b"\1", b"\2", b"", b"\0\0"],
        Serdes.void(): [b"", b"\0"],
        longs: [longs.serialize(each) or b"" for each in ([], [1, None], [None])],
        Serdes.list(Serdes.string()): [Serdes.list(Serdes.bytes()).serialize([b"a", None, b"\xff"]) or b""],
        WindowedSerdes.time_windowed_serde_from(Serdes.string(), timedelta(seconds=5)): [
            *windows,
            *(b"key" + each for each in windows),
            b"\xff" + bytes(8),
        ],
        WindowedSerdes.time_windowed_serde_from(Serdes.long(), timedelta(seconds=5)): [
            bytes(16),
            bytes(15),
            bytes(8),
        ],
        WindowedSerdes.session_windowed_serde_from(Serdes.string()): [*SESSIONS, b"k" + bytes(16), bytes(15)],
        of_schema: [
            header_of(1) + b'{"a":1,"b":"x"}',
            header_of(1),
            header_of(1)[:4],
            b"\0\xff\0\0\0{}",
            b"\1\0\0\0\0{}",
            b"{}",
            header_of(7) + b"{}",
            header_of(1) + b"[1]",
        ],
    }


def mangled(good: list[bytes], number: int, chance: random.Random) -> list[bytes]:
    made = list(good)
    while len(made) < number:
        data = bytearray(chance.choice(made))
        at = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                del data[at:]
            case 1:
                data[at : at + 1] = chance.randbytes(1)
            case 2:
                data[at:at] = chance.randbytes(chance.choice((1, 1, 8)))
            case _:
                del data[at : at + 1]
        made.append(bytes(data[:200]))
    return made
