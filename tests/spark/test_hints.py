"""What Python says of a Column, and what the program should say instead: on the texts of this very Python."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from millstream.spark.compile.hints import no_method, of_builtin, of_error


class Column:
    """Like Spark's: compared, so not hashable, and nothing else of what is tried here."""

    def __eq__(self, other: object) -> bool:
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("slip", "use"),
    [
        (lambda c: len(c), "F.size(...)"),
        (lambda c: abs(c), "F.abs(...)"),
        (lambda c: round(c), "F.round(...)"),
        (lambda c: int(c), '.cast("bigint")'),
        (lambda c: float(c), '.cast("double")'),
        (lambda c: c // 2, "F.floor(a / b)"),
        (lambda c: c << 2, "F.shiftleft"),
        (lambda c: math.sqrt(c), "F.sqrt(...)"),
        (lambda c: json.loads(c), "F.from_json(...)"),
        (lambda c: json.dumps({"a": c}), "F.to_json(...)"),
        (lambda c: re.sub("a", "b", c), "F.regexp_replace(...)"),
        (lambda c: {}[c], "F.create_map(...)[...]"),
        (lambda c: {}.get(c), "F.when(...)"),
        (lambda c: [1, 2][c], "F.element_at"),
        (lambda c: "ab"[c], "F.element_at"),
        (lambda c: range(c), "is not a Python number"),
        (lambda c: "a" + c, "F.concat(...)"),
        (lambda c: ",".join([c]), "F.concat_ws"),
        (lambda c: ",".join(c), "F.array_join"),
        (lambda c: c.__class__.__setitem__ if False else exec("c['a'] = 1", {"c": c}), ".withField"),
        (lambda c: exec("del c['a']", {"c": c}), ".dropFields"),
    ],
)
def test_what_python_raises_is_told_with_the_fix(slip: Callable[[Any], object], use: str) -> None:
    """Whatever this version of Python calls it."""
    with pytest.raises((TypeError, KeyError)) as caught:
        slip(Column())
    assert use in (of_error(str(caught.value)) or "")


def test_what_has_nothing_to_do_with_columns_is_left_as_it_is() -> None:
    """A mistake of another kind."""
    for said in ("'NoneType' object is not callable", "int() argument must be a string, not 'list'", "boom"):
        assert of_error(said) is None
    assert of_builtin("print") is None
    assert of_builtin(None) is None


def test_a_method_that_a_column_has_not_is_told_with_the_function() -> None:
    """The commonest by name; others by where to look."""
    assert no_method("upper") == "a Column has no method upper(): use F.upper(...)"
    assert 'value["x"]' in no_method("get")
    assert 'value["total"]' in no_method("total")
    assert "pyspark.sql.functions" in no_method(None)
    assert "F.greatest(...)" in (of_builtin("max") or "")
