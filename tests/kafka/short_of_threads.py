"""Makes Kafka clients until this process may not start more threads. `memory`: by the limit on its address
space, `threads`: on its user's processes."""

from __future__ import annotations

import faulthandler
import os
import resource
import sys
from pathlib import Path

from millstream.config import StreamsConfig
from millstream.kafka.consumer import KafkaChangelogConsumer

MB = 2**20
MANY = 100


def taken() -> int:
    """The address space in use."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


config = StreamsConfig({"application.id": "short", "bootstrap.servers": "127.0.0.1:1"})
kind, number = sys.argv[1], int(sys.argv[2])
if kind == "memory":
    resource.setrlimit(resource.RLIMIT_AS, (taken() + number * MB,) * 2)
else:
    if os.getuid() == 0:
        os.setuid(65534)  # the limit is not for root
    resource.setrlimit(resource.RLIMIT_NPROC, (number, number))
faulthandler.dump_traceback_later(30, exit=True)
clients = []
try:
    for _ in range(MANY):
        clients.append(KafkaChangelogConsumer(config))
except Exception as error:
    print(f"{len(clients)} made, then {type(error).__name__}: {error}", flush=True)
    for client in clients:
        client.close()
    print("closed", flush=True)
