"""A process that opens many connections and says nothing on them, until its own input ends.

    python crowd.py HOST PORT HOW_MANY

It prints how many it has opened so far, after each hundred.
"""

from __future__ import annotations

import resource
import socket
import sys


def main() -> None:
    host, port, wanted = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted + 100 if hard == resource.RLIM_INFINITY else min(hard, wanted + 100)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    held = []
    for number in range(1, wanted + 1):
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex((host, port))
        held.append(connection)
        if number % 100 == 0:
            print(number, flush=True)
    sys.stdin.read()


main()
