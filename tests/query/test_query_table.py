"""KIP-216 as a table over real handles: each read in each state of client, thread and store.

A client has three partitions, each of a thread of its own; partition 1 and its thread are what changes. What
a read needs is one key of that partition, or that partition by its number, or all that is here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from windowed_worlds import MINUTE, WindowedClient, now
from worlds import CLIENT_STATES, Client, key_in

from millstream.errors import InvalidStateStoreException
from millstream.model import SessionWindow, StoreKind, TimeWindow, Windowed
from millstream.query.provider import PartRole

BUSY = ("CREATED", "STARTING", "PARTITIONS_REVOKED", "PARTITIONS_ASSIGNED", "PENDING_SHUTDOWN")
GONE = ("DEAD", None)

R, M, W = "StreamsRebalancingException", "StateStoreMigratedException", "InvalidStateStorePartitionException"
READ = "read"
NOTHING = "nothing"

# What is of the store here: what a read of a key, of the partition, and of all meets. `seen`: the handle has
# read it before.
RUNNING = {  # client and thread are RUNNING
    "open": (READ, READ, READ),
    "closed": (M, M, M),
    "restoring": (R, R, R),
    "standby": (M, M, M),
    "left": (M, M, M),
    "never here": (NOTHING, W, READ),
    "standby, never read": (NOTHING, W, READ),
}
REBALANCING = {  # the client is, the thread is RUNNING
    "open": (READ, READ, R),
    "closed": (R, R, R),
    "restoring": (R, R, R),
    "standby": (R, R, R),
    "left": (R, R, R),
    "never here": (R, R, R),
    "standby, never read": (R, R, R),
}
THREAD_BUSY = dict.fromkeys(RUNNING, (R, R, R))
THREAD_GONE = {  # the client is RUNNING
    **dict.fromkeys(("open", "closed", "restoring", "standby", "left"), (M, M, M)),
    "never here": (NOTHING, W, READ),
    "standby, never read": (NOTHING, W, READ),
}
STOPPED = "StateStoreNotAvailableException"
NOT_STARTED = "StreamsNotStartedException"


def expected(client: str, thread: str | None, here: str) -> tuple[str, str, str]:
    """The table: for a key, for the partition, for all."""
    if client == "CREATED":
        return (NOT_STARTED,) * 3
    if client not in ("RUNNING", "REBALANCING"):
        return (STOPPED,) * 3
    if thread in BUSY:
        return THREAD_BUSY[here]
    if client == "REBALANCING":
        return REBALANCING[here] if thread == "RUNNING" else THREAD_BUSY[here]
    return THREAD_GONE[here] if thread in GONE else RUNNING[here]


KEY = key_in(1)
AT = datetime.fromtimestamp(now / 1000, UTC)
Read = Callable[[Any], object]


@dataclass(frozen=True)
class Kind:
    """A kind of store: how to make a client that has one, and a handle on it; which reads it has."""

    make: Callable[[], Client]
    handle: Callable[[Any, int | None], Any]
    of_key: Mapping[str, Read]
    of_all: Mapping[str, Read]


def key_values() -> Client:
    client = Client()
    client.put(*(key_in(number) for number in range(3)))
    return client


def windowed(kind: StoreKind, *times: int) -> Client:
    client = WindowedClient(kind)
    for number in range(3):
        client.add(key_in(number), *times)
    return client


TABLES: dict[str, Read] = {
    "iter": list,
    "keys": lambda store: list(store.keys()),
    "values": lambda store: list(store.values()),
    "items": lambda store: list(store.items()),
    "to_arrow": lambda store: store.to_arrow(),
}
KEY_VALUE = Kind(
    key_values,
    lambda client, partition: client.store(partition=partition),
    {
        "get": lambda store: store.get(KEY),
        "multi_get": lambda store: store.multi_get([KEY])[0],
        "in": lambda store: True if KEY in store else None,
        "[]": lambda store: store[KEY],
    },
    {
        "range": lambda store: list(store.range("a", "z")),
        "reverse_range": lambda store: list(store.reverse_range("a", "z")),
        "all": lambda store: list(store.all()),
        "reverse_all": lambda store: list(store.reverse_all()),
        "prefix_scan": lambda store: list(store.prefix_scan("key")),
        "approximate_num_entries": lambda store: store.approximate_num_entries(),
        **TABLES,
    },
)
WINDOW = Kind(
    lambda: windowed(StoreKind.WINDOW, now),
    lambda client, partition: client.windowed(partition=partition),
    {
        "fetch": lambda store: store.fetch(KEY, AT),
        "fetch, times": lambda store: list(store.fetch(KEY, AT, AT)),
        "backward_fetch": lambda store: list(store.backward_fetch(KEY, AT, AT)),
        "in": lambda store: True if Windowed(KEY, TimeWindow(now, now + MINUTE)) in store else None,
        "[]": lambda store: store[Windowed(KEY, TimeWindow(now, now + MINUTE))],
    },
    {
        "fetch, keys and times": lambda store: list(store.fetch("a", "z", AT, AT)),
        "backward_fetch, keys and times": lambda store: list(store.backward_fetch("a", "z", AT, AT)),
        "fetch_all": lambda store: list(store.fetch_all(AT, AT)),
        "backward_fetch_all": lambda store: list(store.backward_fetch_all(AT, AT)),
        "all": lambda store: list(store.all()),
        "backward_all": lambda store: list(store.backward_all()),
        **TABLES,
    },
)
SESSION = Kind(
    lambda: windowed(StoreKind.SESSION, now, now),
    lambda client, partition: client.windowed(partition=partition),
    {
        "fetch": lambda store: list(store.fetch(KEY)),
        "backward_fetch": lambda store: list(store.backward_fetch(KEY)),
        "find_sessions": lambda store: list(store.find_sessions(KEY, AT, AT)),
        "backward_find_sessions": lambda store: list(store.backward_find_sessions(KEY, AT, AT)),
        "fetch_session": lambda store: store.fetch_session(KEY, AT, AT),
        "in": lambda store: True if Windowed(KEY, SessionWindow(now, now)) in store else None,
        "[]": lambda store: store[Windowed(KEY, SessionWindow(now, now))],
    },
    {
        "fetch, keys": lambda store: list(store.fetch("a", "z")),
        "backward_fetch, keys": lambda store: list(store.backward_fetch("a", "z")),
        "find_sessions, keys": lambda store: list(store.find_sessions("a", "z", AT, AT)),
        "backward_find_sessions, keys": lambda store: list(store.backward_find_sessions("a", "z", AT, AT)),
        "all": lambda store: list(store.all()),
        "backward_all": lambda store: list(store.backward_all()),
        **TABLES,
    },
)
KINDS = {"key-value": KEY_VALUE, "window": WINDOW, "session": SESSION}


def in_cell(
    kind: Kind, client_state: str, thread: str | None, here: str, partition: int | None
) -> tuple[Client, Any]:
    """A client in this cell, and a handle that was made, and has read, while all was well."""
    client = kind.make()
    never = here in ("never here", "standby, never read")
    if here == "never here":
        client.move_away(1)
    elif here == "standby, never read":
        client.role_is(1, PartRole.STANDBY)
    if never and partition is not None:
        store = None  # store() would refuse it
    else:
        store = kind.handle(client, partition)
        read = next(iter(kind.of_key.values()))
        assert met(lambda: read(store)) == (NOTHING if never else READ)
    match here:
        case "closed":
            client.stores[1].close()
        case "restoring":
            client.role_is(1, PartRole.RESTORING)
        case "standby":
            client.role_is(1, PartRole.STANDBY)
        case "left":
            client.move_away(1)
    if thread is None:
        threads = client.snapshot().threads
        client.change(threads={name: threads[name] for name in threads if name != "t1"})
    else:
        client.thread_is(1, thread)
    client.client_is(client_state)
    return client, store


def met(read: Callable[[], object]) -> str:
    """How a read came out."""
    try:
        found = read()
    except InvalidStateStoreException as error:
        refused = error
    except KeyError:
        return NOTHING
    else:
        return NOTHING if found is None or found == [] else READ
    assert type(refused) is not InvalidStateStoreException
    assert refused.store == "counts"
    return type(refused).__name__


CELLS = list(itertools.product(CLIENT_STATES, (*BUSY, "RUNNING", *GONE), RUNNING))


@pytest.mark.parametrize("kind", KINDS)
def test_what_each_read_meets_in_each_cell(kind: str) -> None:
    """A handle over all partitions, and one for the partition that changes: 392 cells for each read."""
    reads = KINDS[kind]
    wrong = []
    for cell in CELLS:
        of_key, of_partition, of_all = expected(*cell)
        _, store = in_cell(reads, *cell, None)
        client, single = in_cell(reads, *cell, 1)
        for method, read in {**reads.of_key, **reads.of_all}.items():
            wanted = of_key if method in reads.of_key else of_all
            found = met(lambda: read(store))  # noqa: B023
            if found != wanted:
                wrong.append((method, cell, "all partitions", found, wanted))
            found = met(lambda: read(single or reads.handle(client, 1)))  # noqa: B023
            if found != of_partition:
                wrong.append((method, cell, "one partition", found, of_partition))
    assert wrong == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_store_itself_meets_in_each_cell(kind: str) -> None:
    """`store()` has seen nothing before: what has left was never here for it, and part of a store will do."""
    reads = KINDS[kind]
    for cell in CELLS:
        client, _ = in_cell(reads, *cell, None)
        here = {"left": "never here", "standby": "standby, never read"}.get(cell[2], cell[2])
        if cell[1] in GONE:
            here = "never here"
        _, of_partition, _ = expected(cell[0], cell[1], here)
        if here == "closed" and of_partition in (M, R) and cell[1] == "RUNNING":
            of_partition = READ  # only a read finds out
        assert met(lambda: reads.handle(client, 1)) == of_partition, cell  # noqa: B023
        whole = READ if cell[0] in ("RUNNING", "REBALANCING") else of_partition
        assert met(lambda: reads.handle(client, None)) == whole, (cell, "two partitions can be read")  # noqa: B023
