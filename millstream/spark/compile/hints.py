"""Python's error messages for a Column used as a value, and what the program should do instead.

Text only: this does not use Spark.
"""

from __future__ import annotations

import re

__all__ = ["no_method", "of_builtin", "of_error"]

_METHODS = {
    "upper": "F.upper(...)",
    "lower": "F.lower(...)",
    "casefold": "F.lower(...)",
    "title": "F.initcap(...)",
    "capitalize": "F.initcap(...)",
    "strip": "F.trim(...)",
    "lstrip": "F.ltrim(...)",
    "rstrip": "F.rtrim(...)",
    "split": 'F.split(..., " "), or for words of any alphabet F.split(..., r"(?U)\\W+")',
    "replace": 'F.replace(..., F.lit("a"), F.lit("b"))',
    "join": 'F.array_join(..., ",")',
    "format": 'F.format_string("%s", ...)',
    "find": "F.locate, which counts from 1",
    "zfill": 'F.lpad(..., 5, "0")',
    "ljust": "F.rpad(...)",
    "rjust": "F.lpad(...)",
    "isdigit": '.rlike("^[0-9]+$")',
    "isnumeric": '.rlike("^[0-9]+$")',
    "encode": '.cast("binary")',
    "decode": '.cast("string")',
    "items": "F.map_entries(...)",
    "keys": "F.map_keys(...)",
    "values": "F.map_values(...)",
    "append": "F.array_append(...)",
    "extend": "F.concat(...)",
    "index": "F.array_position(...)",
    "sort": "F.array_sort(...)",
    "isoformat": "F.date_format(...)",
    "strftime": "F.date_format(...)",
    "timestamp": "F.unix_seconds(...)",
    "hex": "F.hex(...)",
    "count": "F.size(...), or F.count(...) in an aggregation",
    "sum": "F.sum(...) in an aggregation",
}

_BUILTINS = {
    "sum": "F.sum(value) in an aggregation; for the elements of an array, F.aggregate(...)",
    "max": "F.max(value) in an aggregation; for the larger of two Columns, F.greatest(...)",
    "min": "F.min(value) in an aggregation; for the smaller of two Columns, F.least(...)",
    "len": "F.length(...) for text, F.size(...) for an array or a map; F.count(...) in an aggregation",
    "any": "F.bool_or(...) in an aggregation; for the elements of an array, F.exists(...)",
    "all": "F.bool_and(...) in an aggregation; for the elements of an array, F.forall(...)",
    "sorted": "F.array_sort(...)",
    "reversed": "F.reverse(...)",
    "map": "F.transform(...)",
    "filter": "F.filter(...)",
    "set": "F.array_distinct(...)",
    "abs": "F.abs(...)",
    "round": "F.round(...)",
}

_ERRORS: tuple[tuple[str, str], ...] = (
    (
        r"object of type 'Column' has no len",
        "a Column has no len(): use F.length(...) for text, F.size(...) for an array or a map",
    ),
    (r"bad operand type for abs\(\): 'Column'", "abs() does not support Columns: use F.abs(...)"),
    (
        r"type Column doesn't define __(round|floor|ceil)__",
        r"\1() does not support Columns: use F.\1(...)",
    ),
    (r"int\(\) argument must be .* not 'Column'", 'int() does not support Columns: use .cast("bigint")'),
    (r"float\(\) argument must be .* not 'Column'", 'float() does not support Columns: use .cast("double")'),
    (
        r"'Column' object cannot be interpreted as an integer",
        "a Column is not a Python number; use the matching function of pyspark.sql.functions",
    ),
    (r"unsupported operand type\(s\) for //: .*'Column'", "Columns do not support //: use F.floor(a / b)"),
    (
        r"unsupported operand type\(s\) for (<<|>>|\^|@|divmod\(\)): .*'Column'",
        r"Columns do not support \1; "
        "look for the function in pyspark.sql.functions, such as F.shiftleft or .bitwiseXOR",
    ),
    (
        r"must be real number, not Column",
        "Python's math does not support Columns: use the function of "
        "pyspark.sql.functions that has the same name, such as F.sqrt(...)",
    ),
    (
        r"the JSON object must be .* not Column",
        "Python's json does not support Columns: read the topic with "
        'Serdes.json("user STRING, amount DOUBLE"), or use F.from_json(...)',
    ),
    (
        r"Object of type Column is not JSON serializable",
        "Python's json does not support Columns: return a dict "
        "of Columns, which the serde writes as JSON, or use F.to_json(...)",
    ),
    (
        r"expected string or bytes-like object(, got 'Column')?$",
        "Python's re does not support Columns: use .rlike(...), F.regexp_extract(...) or "
        "F.regexp_replace(...)",
    ),
    (
        r"unhashable type: 'Column'",
        "a Column cannot be looked up in a Python dict or set, because it has no value yet: use .isin(...), "
        "F.when(...), or a map of Columns, F.create_map(...)[...]",
    ),
    (
        r"list indices must be integers or slices, not Column|tuple indices must be integers or slices, not "
        r"Column|string indices must be integers, not 'Column'",
        "a Column is not a Python index: use F.element_at(F.array(...), ...), which counts from 1",
    ),
    (
        r"can only concatenate \w+ \(not \"Column\"\) to \w+",
        "Python cannot join a Column to its own values: use F.concat(...)",
    ),
    (r"can only join an iterable$", 'the elements of an array are joined with F.array_join(value.tags, ",")'),
    (r"sequence item \d+: expected str instance, Column found", 'text is joined with F.concat_ws(",", ...)'),
    (
        r"'Column' object does not support item assignment",
        'a Column cannot be changed: use .withField("name", ...) or return a dict of Columns',
    ),
    (
        r"'Column' object does not support item deletion",
        'a Column cannot be changed: use .dropFields("name")',
    ),
)


def no_method(name: str | None) -> str:
    """The hint for a Column that was called: `value.user.upper()`."""
    if name is None:
        return "a Column was called, but is not a function; look in pyspark.sql.functions for the right one"
    if name == "get":
        return 'a Column has no method get(): use value["x"] for a field, or for a key of a map'
    use = _METHODS.get(name)
    if use is not None:
        return f"a Column has no method {name}(): use {use}"
    return (
        f"a Column has no method {name}(): look for it in pyspark.sql.functions; a field of that name is "
        f'value["{name}"], and is not called'
    )


def of_builtin(name: str | None) -> str | None:
    """The hint for a built-in Python function that got Columns."""
    use = _BUILTINS.get(name or "")
    return None if use is None else f"{name}() is Python's own and does not support Columns: use {use}"


def of_error(text: str) -> str | None:
    """The hint for a Python error; None: it says enough, or has nothing to do with Columns."""
    for pattern, use in _ERRORS:
        found = re.search(pattern, text)
        if found is not None:
            return found.expand(use)
    return None
