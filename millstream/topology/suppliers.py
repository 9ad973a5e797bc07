"""Suppliers of processors: a class, a function without parameters, or an object with `get()`.

Checks a processor's methods, not its class: the classes are in `processors/api.py`, above this package.

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
"""The maximum number of objects searched for texts in a program's code, which may refer to many."""

_SHAPE = "a class that inherits Processor, or a function that returns a new one each time"


def new_processor(supplier: Any) -> Any:
    """A new object from the supplier."""
    get = None if isinstance(supplier, type) else getattr(supplier, "get", None)
    return supplier() if get is None else get()


def check_supplier(operation: str, supplier: Any, *, fixed_key: bool) -> None:
    """Raise if `supplier` does not fit `operation`. Calls it twice, as Kafka Streams does.

    Raises:
        TopologyException: it returns nothing, no processor, one of the other type, or the same one twice.
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
    """Raise if `supplier` does not fit `KTable.transform_values`. Calls it twice.

    Raises:
        TopologyException: it returns nothing, no transformer, or the same one twice.
    """
    shape = (
        "a function of key and value, a class that inherits ValueTransformerWithKey, or a function without "
        "arguments that returns a new one each time"
    )
    _one_of_two("transform_values", supplier, "transformer", "transform", shape)


def _one_of_two(operation: str, supplier: Any, thing: str, method: str, shape: str) -> Any:
    """A new object from the supplier, checked to have this method and to be a different one each time."""
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
    """The store builders from the `stores()` of a supplier, or of a class used as one."""
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
        TopologyException: it is not a store builder.
    """
    declared = getattr(builder, "declared", None)
    if not isinstance(declared, Store):
        raise TopologyException(
            f"{operation}() takes a store builder, such as Stores.key_value_store_builder("
            f'Stores.persistent_key_value_store("counts"), Serdes.string(), Serdes.long()); got {builder!r}'
        )
    return declared


def global_store(builder: Any) -> Store:
    """The store that a builder builds, which a processor fills in every client.

    Raises:
        TopologyException: it is not a store builder, or builds another kind of store.
    """
    declared = declared_store("add_global_store", builder)
    if declared.kind is not StoreKind.KEY_VALUE or declared.history_ms is not None:
        raise TopologyException(
            f"the global store '{declared.name}' is a key-value store without a history, as its builder "
            "Stores.key_value_store_builder(…) or Stores.timestamped_key_value_store_builder(…) makes one"
        )
    return declared


# --- names in its code -------------------------------------------------------------------------------------


def texts_of(supplier: Any) -> frozenset[str]:
    """Every string in the code of its processors, or in a variable that the code names.

    Follows the program's own functions, classes and objects that are reachable by name.
    """
    found: set[str] = set()
    seen: set[int] = set()
    waiting: deque[Any] = deque([supplier])
    try:
        waiting.append(new_processor(supplier))
    except Exception:  # then its class has the information
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
    """The objects that one of the program's own objects contains or names."""
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
    """The names in a function's code, nested code included."""
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
    """Whether a class belongs neither to Python nor to Millstream."""
    return kind.__module__.partition(".")[0] not in ("builtins", "abc", "typing", "enum", "millstream")
