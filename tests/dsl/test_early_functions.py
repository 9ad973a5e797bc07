"""Functions with types as text, made before Spark runs."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millstream.dsl.early_functions import data_type

_KNOWN = (
    *("string", " STRING ", "int", "integer", "bigint", "long", "smallint", "short", "tinyint", "byte"),
    *("boolean", "float", "real", "double", "binary", "date", "timestamp", "timestamp_ntz", "timestamp_ltz"),
    *("decimal", "decimal(5)", "decimal(12, 2)", "dec(3,1)", "numeric(38,38)", "array<int>"),
    *(
        "ARRAY< short >",
        "map<string , bigint>",
        "struct<a:int,b:string>",
        "struct<a: array<map<string,date>>, `b` int>",
    ),
    *("a int", "a: int, b string", "a INT NOT NULL, `b``c` array<struct<d: date>>", "_x double", "int int"),
    *("string string, array array<int>", "a struct<b: int not null>"),
)
_UNKNOWN = (
    *("", "str", "array", "array<int", "map<int>", "a int,", "a int b string", "decimal(39)", "decimal(2,3)"),
    *("varchar(5)", "char(3)", "interval day", "a int comment 'x'", "string collate UTF8_LCASE", "a-b int"),
    *("void", "variant", "1a int", "array<int>>", "struct<>", "a int default 3", "int)", "timestamp without"),
)


def test_what_is_not_surely_a_type_is_left_to_spark() -> None:
    """Mistakes as well as types of which text alone does not tell enough."""
    assert [text for text in _UNKNOWN if data_type(text) is not None] == []
    assert [text for text in _KNOWN if data_type(text) is None] == []


@pytest.mark.spark
def test_a_type_is_the_one_that_spark_reads(spark: SparkSession) -> None:
    """Of each text that is read here."""
    read = spark.sparkContext._parse_ddl  # type: ignore[attr-defined]
    assert [text for text in _KNOWN if data_type(text) != read(text)] == []


_PROGRAM = """
    {first}
    {second}
    from pyspark.sql import functions as F
    from pyspark.errors import PySparkException
    import pandas as pd

    @F.udf("string")
    def shout(text): return text.upper()
    count = F.udf(lambda text: [len(text)], "array<int>")
    @F.pandas_udf("a: int, b: string")
    def both(texts: pd.Series) -> pd.DataFrame: ...
    print(shout.returnType.simpleString(), count.returnType.simpleString(), both.returnType.simpleString())
    try:
        F.udf(lambda text: text, "varchar(5)")
    except PySparkException as error:
        print(error.getCondition())
    import pyspark.sql.udf, sys
    print(type(pyspark.sql.udf.__loader__).__name__)
    print([finder for finder in sys.meta_path if "early_functions" in type(finder).__module__])
"""


@pytest.mark.disk
@pytest.mark.parametrize(
    "order",
    [
        ("import millstream", "import pyspark.sql"),
        ("import pyspark.sql.udf", "import millstream"),
        (
            "import sys, importlib.util as u, millstream; at = u.find_spec('pyspark').origin",
            "[each.find_spec('pyspark.sql.udf', [at[:-11] + 'sql']) for each in sys.meta_path]",
        ),
    ],
    ids=["millstream first", "pyspark first", "somebody looked"],
)
def test_functions_are_made_before_spark_runs(order: tuple[str, str]) -> None:
    """Whichever is imported first; what is not known here PySpark refuses as ever."""
    program = textwrap.dedent(_PROGRAM.format(first=order[0], second=order[1]))
    root = Path(__file__).resolve().parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(root)},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "string array<int> struct<a:int,b:string>",
        "SESSION_OR_CONTEXT_NOT_EXISTS",
        "SourceFileLoader",
        "[]",
    ]


@pytest.mark.disk
def test_millstream_does_not_import_pyspark() -> None:
    """A client that only reads stores does without."""
    program = "import millstream, sys; print('pyspark' in sys.modules)"
    root = Path(__file__).resolve().parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(root)},
        check=True,
        timeout=60,
    )
    assert done.stdout == "False\n"
