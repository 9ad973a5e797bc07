"""The demo's topology: what a user of Millstream writes to count words."""

from __future__ import annotations

from pyspark.sql import functions as F

from millstream import Consumed, Materialized, Serdes, StreamsBuilder, Topology
from millstream_demo.words import WORD

__all__ = ["LINES", "STORE", "WORD_COUNTS", "word_count"]

LINES, WORD_COUNTS, STORE = "lines", "word-counts", "counts"


def word_count() -> Topology:
    """Lines of text in; out comes each word with its count so far, also kept in a store."""
    builder = StreamsBuilder()
    (
        builder.stream(LINES, Consumed.with_(Serdes.string(), Serdes.string()))
        .flat_map_values(lambda line: F.transform(F.regexp_extract_all(line, F.lit(WORD), F.lit(0)), F.lower))
        .group_by(lambda key, word: word)
        .count(Materialized.as_(STORE))
        .to_stream()
        .to(WORD_COUNTS)
    )
    return builder.build()
