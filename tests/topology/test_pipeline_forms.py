"""In which form a pipeline runs, and what is said of it; without Spark."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream import Consumed, Processor, Serdes, StreamsBuilder
from millstream.topology.pipeline_forms import needing_batches

STRINGS = Consumed.with_(Serdes.string(), Serdes.string())
SHOUT = F.udf(lambda value: value.upper(), T.StringType())


class Nothing(Processor):
    def process(self, record: object) -> None: ...


def count(builder: StreamsBuilder) -> None:
    builder.stream("in", STRINGS).group_by(lambda key, value: value).count()


def fold(builder: StreamsBuilder) -> None:
    builder.stream("in", STRINGS).group_by_key().aggregate(lambda: 0, lambda key, value, total: total + 1)


def processor(builder: StreamsBuilder) -> None:
    builder.stream("in", STRINGS).process(Nothing)


def udf(builder: StreamsBuilder) -> None:
    builder.stream("in", STRINGS).map_values(lambda value: SHOUT(value)).to("out")


def udf_in_a_closure(builder: StreamsBuilder) -> None:
    shout = SHOUT
    builder.stream("in", STRINGS).map_values(lambda value: shout(value)).to("out")


@pytest.mark.parametrize(
    ("program", "because"),
    [
        (count, ""),
        (fold, ""),
        (processor, ""),
        (udf, "'SHOUT' in test_pipeline_forms.py"),
        (udf_in_a_closure, "'shout' in test_pipeline_forms.py"),
    ],
)
def test_a_udf_needs_batches(program: Callable[[StreamsBuilder], None], because: str) -> None:
    """Functions of Python that the kernel calls do not; explain() says so."""
    builder = StreamsBuilder()
    program(builder)
    topology = builder.build()
    found = [sentence for pipeline in topology.pipelines for sentence in needing_batches(pipeline)]
    assert bool(found) == bool(because)
    assert because in " ".join(found)
    assert ("    batches:  " in topology.explain()) == bool(because)
