"""The client in the process of a `single.App`: it answers the lines of its input on its output."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from millstream import KafkaStreams, Topology

__all__ = ["answer_lines"]


def answer_lines(
    topology: Topology,
    config: Mapping[str, Any],
    answer: Callable[[KafkaStreams, str], Any],
    *,
    within: timedelta = timedelta(seconds=90),
) -> None:
    """Run a client until the input ends. Prints RUNNING when it is, then the answer to each line, as JSON.

    Args:
        within: how long it may take to be RUNNING.
    """
    with KafkaStreams(topology, config) as streams:
        streams.wait_until_running(within)
        print("RUNNING", flush=True)
        for line in sys.stdin:
            print(json.dumps(answer(streams, line.strip())), flush=True)
