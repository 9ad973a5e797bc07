"""Nothing in a record ends a client: keys, values, headers and timestamps of every kind, in every kind of source."""

from __future__ import annotations

import pytest
from fuzzing import counted, fuzzed, is_good, program, sessions, windows

from millstream.testing import TestRecord, TopologyTestDriver

pytestmark = pytest.mark.spark

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
ALL_TIMES = (0, 1, -1, NOW_MS, NOW_MS + 1, NOW_MS + DAY_MS, 10**15, -(10**15), 2**62, 2**63 - 1, -(2**63))


def test_through_the_test_driver() -> None:
    """With every timestamp that 64 bits can be: bad records are dropped, the others all counted, in windows
    of the years that there are."""
    records = fuzzed(ALL_TIMES, 300)
    good = [record for record in records if is_good(record)]
    config = {"deserialization.exception.handler": "continue"}
    with TopologyTestDriver(program(), config) as driver:
        for topic in ("in", "table", "global"):
            driver.create_input_topic(topic, "bytes", "bytes").pipe_record_list(
                TestRecord(r.key, r.value, r.timestamp, r.headers) for r in records
            )
        copies = driver.create_output_topic("copy", "bytes", "bytes").read_records_to_list()
        assert [(r.key, r.value, r.headers) for r in copies] == [(r.key, r.value, r.headers) for r in good]
        with driver.get_key_value_store("counts").all() as entries:
            assert dict(entries) == counted(records)
        found = driver.create_output_topic("windows", "bytes", "long").read_key_values_to_map()
        starts = {(key[:-8], int.from_bytes(key[-8:], "big")): count for key, count in found.items()}
        assert starts == windows(records)
        found = driver.create_output_topic("sessions", "bytes", "long").read_key_values_to_map()
        assert sum(count or 0 for count in found.values()) == sessions(records)
