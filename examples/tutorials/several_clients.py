"""Runs the first program as one of several clients: python several_clients.py NAME."""

import sys
from datetime import timedelta
from pathlib import Path

from first_program import topology

from millstream import InvalidStateStoreException, KafkaStreams

name = sys.argv[1] if len(sys.argv) > 1 else "one"
here = Path("state").absolute()
config = {
    "application.id": "shared-page-views",
    "bootstrap.servers": "localhost:9092",
    "client.id": name,
    "state.dir": str(here / name),  # each client has its own
    "num.standby.replicas": 1,  # another client keeps a copy of each store
    "session.timeout.ms": 6000,  # how soon a killed client is given up
}


def look(streams: KafkaStreams) -> str:
    """What this client has, and what its part of the store says."""
    threads = streams.metadata_for_local_threads()
    active = sum(len(thread.active_tasks) for thread in threads)
    standby = sum(len(thread.standby_tasks) for thread in threads)
    try:
        counts = dict(streams.store("views-per-page").all())
    except InvalidStateStoreException as error:
        counts = f"not now ({type(error).__name__})"
    return f"{name}: {active} active tasks, {standby} standby tasks, {counts}"


if __name__ == "__main__":
    with KafkaStreams(topology, config) as streams:
        before = ""
        while not streams.wait(timedelta(milliseconds=200)).has_completed_shutdown:
            if (now := look(streams)) != before:
                print(now, flush=True)
                before = now
