"""A program that has DuckDB's process busy, and forks a child that asks something itself.

    python sql_parent.py

Lines that it prints: `kept <pid>` of the process that is kept; `forked <answer>` of a child that was forked,
which must not use that one; `busy`, once a query is running that will not end by itself.
"""

from __future__ import annotations

import os
import threading

from waiting import wait_until
from worlds import Client

from millstream.query import sql
from millstream.query.sql import run_sql


def main() -> None:
    client = Client()
    run_sql(client, "select 1")
    (kept,) = sql._PROCESSES._kept
    print("kept", kept.pid, flush=True)
    if (child := os.fork()) == 0:
        answer = run_sql(client, "select 42 as x").to_pylist()
        (own,) = sql._PROCESSES._kept
        print("forked", answer[0]["x"] if own.pid != kept.pid else "the parent's", flush=True)
        sql._PROCESSES.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert run_sql(client, "select 7 as x").to_pylist() == [{"x": 7}]
    endless = "select levenshtein(repeat('a', 200000), repeat('b', 200000))"
    asking = threading.Thread(target=run_sql, args=(client, endless), name="asks", daemon=True)
    asking.start()
    wait_until(lambda: not sql._PROCESSES._kept, "it is being asked")
    print("busy", flush=True)
    asking.join()


main()
