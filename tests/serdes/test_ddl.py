"""Schemas of serdes: what is surely wrong is told where it is given, and nothing else is."""

from __future__ import annotations

import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from millstream import Consumed, Serdes, StreamsBuilder, TopologyException
from millstream.serdes.ddl import complaint
from millstream.testing import TopologyTestDriver

RIGHT = [
    "user STRING, amount DOUBLE",
    "a: int, b : string",
    "struct<a:int,b:array<string>>",
    "STRUCT<a: INT NOT NULL COMMENT 'x, y'>",
    "a string not null comment 'a, b', b int",
    "`user-id` string, 1a int",
    "a array<array<int>>, m map<string, struct<x int, y: array<double>>>",
    "a decimal, b decimal(10), c decimal(10, 2), d dec(3,1), e numeric",
    "a varchar(10), b char(3), c timestamp_ntz, d timestamp_ltz, e date, f binary, g void",
    "a interval day to second, b interval year, c interval",
    "a variant, b struct<>",
    "a string collate UTF8_LCASE, b array<string collate UTF8_LCASE>, c int",
    "date date, array array<int>, struct struct<a int>, map map<string,int>",
    "a real, b byte, c short, d long, e tinyint, f smallint, g bigint, h boolean",
    "a timestamp without time zone",
    "a int, -- the amount\n b int /* and this */",
    "a int,\n  b double\n",
]
WRONG = {
    "a STRNG": "there is no type STRNG; did you mean STRING?",
    "a bool": "there is no type BOOL; did you mean BOOLEAN?",
    "a int64": "there is no type INT64; did you mean BIGINT?",
    "a str": "there is no type STR; did you mean STRING?",
    "a datetime": "there is no type DATETIME; did you mean TIMESTAMP?",
    "a list<int>": "there is no type LIST; did you mean ARRAY<STRING>?",
    "a xyzzy": "there is no type XYZZY",
    "a": "the field 'a' has no type",
    "a struct<b>": "the field 'b' has no type",
    "a:": "the field 'a' has no type",
    "a STRING,": "there is one comma too many",
    "a int, , b int": "there is one comma too many",
    "a int b int": "a comma is missing before 'b'",
    "a array<int": "a '<' is not closed",
    "a decimal(10": "a '(' is not closed",
    "a int>": "'>' has no matching opening bracket",
    "a array": "ARRAY needs a type in angle brackets: ARRAY<STRING>",
    "a array<>": "a type is missing before '>'",
    "a map<string>": "MAP needs two types: MAP<STRING, BIGINT>",
    ": int": "a field's name is missing before ':'",
    "user-id string": "a name with '-' in it must be in backticks: `user-id` STRING",
}
NO_STRUCT = ["int", "array<int>", "map<string, int>", "decimal(10, 2)"]


@pytest.mark.parametrize("ddl", RIGHT)
def test_a_schema_is_taken(ddl: str) -> None:
    """It is not changed."""
    assert complaint(ddl) is None
    assert Serdes.json(ddl).schema == ddl  # type: ignore[attr-defined]


@pytest.mark.parametrize("ddl", WRONG)
def test_a_wrong_schema_is_refused_where_it_is_given(ddl: str) -> None:
    """The error has the line, what is wrong, and an example."""
    with pytest.raises(TopologyException) as caught:
        Serdes.json(ddl)
    said = str(caught.value)
    assert said.startswith(f"Invalid topology: Serdes.json({ddl!r}) at test_ddl.py:")
    assert said.partition("test_ddl.py:")[2].partition(": ")[2] == (
        f"{WRONG[ddl]}. A schema is written as in Spark's DDL, "
        '"user STRING, amount DOUBLE, tags ARRAY<STRING>"'
    )


@pytest.mark.parametrize("schema", ["int", "ARRAY<INT>", "map<string, int>", "decimal(10, 2)"])
def test_a_type_is_the_schema_of_a_whole_value(schema: str) -> None:
    """A list, a map or a single value: JSON need not be an object."""
    assert complaint(schema) is None
    assert not Serdes.json(schema).is_object  # type: ignore[attr-defined]


def test_where_a_serde_was_made_does_not_make_it_another_one() -> None:
    """Serdes compare by value."""
    assert Serdes.json("a int") == Serdes.json("a int")
    assert "test_ddl" not in repr(Serdes.json("a int"))


@pytest.mark.spark
def test_spark_agrees(spark: SparkSession) -> None:
    """What is refused here Spark refuses too, and the other way round."""
    assert spark
    for ddl in RIGHT:
        assert isinstance(T.DataType.fromDDL(ddl), T.StructType), ddl
    for ddl in NO_STRUCT:
        assert not isinstance(T.DataType.fromDDL(ddl), T.StructType), ddl
    for ddl in WRONG:
        with pytest.raises(ParseException):
            T.DataType.fromDDL(ddl)


@pytest.mark.spark
def test_what_only_spark_sees_is_told_with_the_line_of_the_serde() -> None:
    """The error is raised when the topology is compiled."""
    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(Serdes.string(), Serdes.json("a string; b int"))).to("out")
    with pytest.raises(TopologyException) as caught:
        TopologyTestDriver(builder.build())
    said = str(caught.value)
    assert said.startswith("Invalid topology: Serdes.json('a string; b int') at test_ddl.py:")
    assert "Spark cannot read this schema: [PARSE_SYNTAX_ERROR] Syntax error at or near ';'" in said
