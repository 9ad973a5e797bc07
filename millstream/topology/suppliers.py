"""What makes processors: a class, a function without parameters, or an object with `get()`.

Which class a processor has is not looked at, only what it can do: the classes themselves are in
`processors/api.py`, above this package.

Source: org.apache.kafka.streams.internals.ApiUtils.checkSupplier; ConnectedStoreProvider (KIP-401).
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

from millstream.errors import TopologyException
from millstream.model import StoreKind
from millstream.topology.functions import describe_function
from millstream.topology.nodes import Store

__all__ = [
    "check_supplier",
    "check_transformers",
    "declared_store",
    "global_store",
    "is_filled",
    "names_in",
    "new_processor",
    "stores_of",
    "texts_of",
]

_MOST_THINGS = 20_000
"""So many are looked at, for the texts in a program's code: what it refers to may be large."""

_SHAPE = "a class that inherits Processor, or a function that returns a new one each time"


def new_processor(supplier: Any) -> Any:
    """What the supplier makes."""
    get = None if isinstance(supplier, type) else getattr(supplier, "get", None)
    return supplier() if get is None else get()


def check_supplier(operation: str, supplier: Any, *, fixed_key: bool) -> None:
    """Raise if `supplier` cannot be what `operation` takes. It is called, twice, as Kafka Streams does.

    Raises:
        TopologyException: it makes nothing, or no processor, or one of the other sort, or the same one again.
    """
    one = _one_of_two(operation, supplier, "processor", "process", _SHAPE)
    is_fixed = getattr(one, "fixed_key", None)
    if is_fixed is not None and is_fixed != fixed_key:
        wanted, other_operation = (
            ("FixedKeyProcessor", "process") if fixed_key else ("Processor", "process_values")
        )
        raise TopologyException(
            f"{operation}() takes a {wanted}, and {describe_function(supplier)} makes a "
            f"{type(one).__name__} instead; use {other_operation}(), or inherit {wanted}"
        )


def check_transformers(supplier: Any) -> None:
    """Raise if `supplier` cannot be what `KTable.transform_values` takes. It is called, twice.

    Raises:
        TopologyException: it makes nothing, or no transformer, or the same one again.
    """
    shape = (
        "a function of key and value, a class that inherits ValueTransformerWithKey, or a function without "
        "arguments that returns a new one each time"
    )
    _one_of_two("transform_values", supplier, "transformer", "transform", shape)


def _one_of_two(operation: str, supplier: Any, thing: str, method: str, shape: str) -> Any:
    """What a supplier makes, which has this method and is another one each time."""
    if not isinstance(supplier, type) and callable(getattr(supplier, method, None)):
        kind = type(supplier).__name__
        raise TopologyException(
            f"{operation}() got a {thing}, {kind}(…): each task needs its own; pass a supplier "
            f"instead, {kind} itself or `lambda: {kind}(…)`"
        )
    if not callable(supplier) and not callable(getattr(supplier, "get", None)):
        raise TopologyException(f"{operation}() takes {shape}; got {supplier!r}")
    what = describe_function(supplier)
    if isinstance(supplier, type) and inspect.isabstract(supplier):
        raise TopologyException(f"{operation}() got the class {supplier.__name__}, which has no {method}()")
    try:
        one, other = new_processor(supplier), new_processor(supplier)
    except Exception as error:
        raise TopologyException(
            f"{operation}() got {what}, which failed when it was called without arguments "
            f"({type(error).__name__}: {error}); it takes {shape}"
        ) from error
    if not callable(getattr(one, method, None)):
        if method == "process" and callable(supplier) and inspect.isgenerator(one):
            raise TopologyException(
                f"{operation}() got the generator function {what}: put @processor above it, from "
                "millstream import processor"
            )
        hint = "; did you forget a `return`? It takes " if method == "process" else "; it takes "
        raise TopologyException(
            f"{operation}() got {what}, which made a {type(one).__name__} without {method}(){hint}{shape}"
        )
    if one is other:
        raise TopologyException(
            f"{what} generates single reference. Supplier#get() must return a new object each time it is "
            "called."
        )
    return one


def stores_of(supplier: Any) -> tuple[Any, ...]:
    """The store builders that a supplier brings with it (`stores()`), or a class that is one."""
    stores = getattr(supplier, "stores", None)
    if not callable(stores):
        return ()
    given = stores()
    if given is None:
        return ()
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TopologyException(
            f"stores() of {describe_function(supplier)} returns store builders, such as "
            f"[Stores.key_value_store_builder(…)]; got {given!r}"
        )
    return tuple(given)


def declared_store(operation: str, builder: Any) -> Store:
    """The store that a builder builds.

    Raises:
        TopologyException: it is no store builder.
    """
    declared = getattr(builder, "declared", None)
    if not isinstance(declared, Store):
        raise TopologyException(
            f"{operation}() takes a store builder, such as Stores.key_value_store_builder("
            f'Stores.persistent_key_value_store("counts"), Serdes.string(), Serdes.long()); got {builder!r}'
        )
    return declared


def global_store(builder: Any) -> Store:
    """The store that a builder builds, to be filled by a processor in every client.

    Raises:
        TopologyException: it is no store builder, or one of another kind.
    """
    declared = declared_store("add_global_store", builder)
    if declared.kind is not StoreKind.KEY_VALUE or declared.history_ms is not None:
        raise TopologyException(
            f"the global store '{declared.name}' is a key-value store without a history, as its builder "
            "Stores.key_value_store_builder(…) or Stores.timestamped_key_value_store_builder(…) makes one"
        )
    return declared


# --- what its code can name --------------------------------------------------------------------------------


def texts_of(supplier: Any) -> frozenset[str]:
    """Every text that the code of its processors mentions, or has in a variable that it mentions.

    Followed are functions, classes and objects of the program's own, as far as they are reached by name.
    """
    found: set[str] = set()
    seen: set[int] = set()
    waiting: deque[Any] = deque([supplier])
    try:
        waiting.append(new_processor(supplier))
    except Exception:  # then its class says what there is to say
        waiting.append(None)
    while waiting and len(seen) < _MOST_THINGS:
        each = waiting.popleft()
        if isinstance(each, str):
            found.add(each)
        if each is None or isinstance(each, str | bytes | int | float) or id(each) in seen:
            continue
        seen.add(id(each))
        waiting.extend(_reached(each))
    return frozenset(found)


def _reached(thing: Any) -> Iterator[Any]:
    """What a thing of the program's own has, or names."""
    if isinstance(thing, MethodType):
        yield thing.__func__
    elif isinstance(thing, FunctionType):
        for name in names_in(thing.__code__):
            yield thing.__globals__.get(name)
        yield thing.__code__
        yield from (cell.cell_contents for cell in thing.__closure__ or () if is_filled(cell))
        yield from (*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values())
        yield getattr(thing, "__wrapped__", None)
    elif isinstance(thing, CodeType):
        yield from thing.co_consts
    elif isinstance(thing, tuple | list | set | frozenset):
        yield from thing
    elif isinstance(thing, dict):
        yield from (*thing.keys(), *thing.values())
    elif isinstance(thing, type):
        if _is_the_programs(thing):
            yield from (*vars(thing).values(), *thing.__bases__)
    elif isinstance(thing, staticmethod | classmethod | property):
        yield from (getattr(thing, "__func__", None), getattr(thing, "fget", None))
    elif _is_the_programs(type(thing)) or hasattr(thing, "store_names"):
        yield from (type(thing), *getattr(thing, "__dict__", {}).values())


def names_in(code: CodeType) -> set[str]:
    """The names that a function's code uses, and the code inside of it."""
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return {*code.co_names, *(name for each in inner for name in names_in(each))}


def is_filled(cell: Any) -> bool:
    """Whether a variable of a closure has a value yet."""
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _is_the_programs(kind: type) -> bool:
    """Whether a class is neither Python's nor Millstream's."""
    return kind.__module__.partition(".")[0] not in ("builtins", "abc", "typing", "enum", "millstream")
