"""Processors as functions: `@processor` decorates a function that yields its output records.

Source: none; Kafka Streams has only classes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeGuard, overload

from millstream.errors import TopologyException
from millstream.processors.api import FixedKeyRecord, Record
from millstream.topology.functions import describe_function
from millstream.topology.nodes import Store

__all__ = ["FunctionSupplier", "FunctionTransformers", "is_function_of_rows", "processor"]

_CONTEXT = "context"


class FunctionSupplier:
    """The result of `@processor`: pass it to `process`, `process_values` or `add_processor`. It can still be
    called as a function.

    Attributes:
        store_names: the stores that it requests by name.
    """

    def __init__(self, function: Callable[..., Any], stores: tuple[Any, ...]) -> None:
        self.__wrapped__ = function
        self.__doc__ = function.__doc__
        self.__name__: str = getattr(function, "__name__", "processor")
        self._function = function
        self._builders = tuple(each for each in stores if not isinstance(each, str))
        parameters = list(inspect.signature(function).parameters)
        if not parameters:
            raise TopologyException(
                f"@processor {describe_function(function)} takes no record; write `def "
                f"{self.__name__}(record):`"
            )
        wanted = [name for name in parameters[1:] if name != _CONTEXT]
        given = [each if isinstance(each, str) else each.declared.name for each in stores]
        if stores and len(wanted) != len(given):
            raise TopologyException(
                f"@processor {describe_function(function)} has {len(wanted)} parameters for stores "
                f"({', '.join(wanted) or 'none'}) but {len(given)} stores ({', '.join(given)}); it takes the "
                "record, then each store, and `context` if needed"
            )
        names = dict(zip(wanted, given or wanted, strict=True))
        self._parameters = tuple((name, names.get(name)) for name in parameters[1:])
        mine = {each.declared.name for each in self._builders}
        self.store_names: tuple[str, ...] = tuple(name for name in names.values() if name not in mine)

    def get(self) -> Any:
        """A new processor."""
        return _FunctionProcessor(self._function, self._parameters)

    def stores(self) -> tuple[Any, ...]:
        """The builders of its stores."""
        return self._builders

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._function(*arguments, **named)

    def __repr__(self) -> str:
        return f"@processor {describe_function(self._function)}"


class _FunctionProcessor:
    """A function as a processor, for records with or without fixed keys."""

    def __init__(self, function: Callable[..., Any], parameters: tuple[tuple[str, str | None], ...]) -> None:
        self._function = function
        self._parameters = parameters

    def init(self, context: Any) -> None:
        self._forward = context.forward
        self._arguments = [
            context if store is None else context.get_state_store(store) for _, store in self._parameters
        ]

    def process(self, record: Any) -> None:
        made = self._function(record, *self._arguments)
        if made is None:
            return
        if isinstance(made, Record | FixedKeyRecord):
            self._forward(made)
            return
        if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], str):
            self._forward(made[1], made[0])
            return
        if not isinstance(made, Iterable):
            raise TypeError(self._refused(made))
        for each in made:
            if isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str):
                self._forward(each[1], each[0])
            elif isinstance(each, Record | FixedKeyRecord):
                self._forward(each)
            else:
                raise TypeError(self._refused(each))

    def _refused(self, made: Any) -> str:
        return (
            f"@processor {describe_function(self._function)} produced {made!r}; it must yield, or return, "
            "records such as record.with_value(…), or pairs of a child's name and a record"
        )


@overload
def processor(function: Callable[..., Any], /) -> FunctionSupplier: ...
@overload
def processor(
    *, store: Any = None, stores: Iterable[Any] = ()
) -> Callable[[Callable[..., Any]], FunctionSupplier]: ...
def processor(
    function: Callable[..., Any] | None = None, /, *, store: Any = None, stores: Iterable[Any] = ()
) -> FunctionSupplier | Callable[[Callable[..., Any]], FunctionSupplier]:
    """Turn a function into a processor: it is called for each record, and yields records to forward.

        @processor(store=Stores.key_value_store_builder(
            Stores.persistent_key_value_store("counts"), Serdes.string(), Serdes.long()))
        def count(record, counts):
            total = (counts.get(record.key) or 0) + 1
            counts.put(record.key, total)
            yield record.with_value(total)

        stream.process(count, value_serde=Serdes.long())

    When the function resumes after a yield, all downstream steps have processed the record. To send a record
    to only one of several steps, yield a pair of that step's name and the record.

    Args:
        store: the store for the second parameter, as a store builder or by name.
        stores: the same for several stores, in the order of the parameters. Without either, the parameter
            names are the store names. A parameter called `context` gets the processor's context.

    Raises:
        TopologyException: parameters and stores do not match.
    """
    given = (*(() if store is None else (store,)), *stores)
    for each in given:
        if not isinstance(each, str) and not isinstance(getattr(each, "declared", None), Store):
            raise TopologyException(
                "@processor takes store builders, such as Stores.key_value_store_builder(…), or names of "
                "stores; "
                f"got {each!r}"
            )
    if function is None:
        return lambda function: FunctionSupplier(function, given)
    if not callable(function):
        raise TopologyException(
            f"@processor decorates a function, or is called with store=…; got {function!r}"
        )
    return FunctionSupplier(function, given)


class FunctionTransformers:
    """Supplies transformers for `KTable.transform_values` that call a function of key, value, and stores.

    Args:
        stores: the names of the stores for the parameters after key and value, in order. Without any, the
            names of these parameters are the store names.

    Attributes:
        store_names: the stores that it requests by name.
    """

    def __init__(self, function: Callable[..., Any], stores: tuple[str, ...] = ()) -> None:
        self.__wrapped__ = function
        self._function = function
        key_and_value, parameters = _apart(function)
        if len(key_and_value) < 2:
            raise TopologyException(
                f"a function for transform_values() takes key and value, but {describe_function(function)} "
                f"takes {', '.join(key_and_value)}; write `lambda key, value: …`"
            )
        wanted = [name for name in parameters if name != _CONTEXT]
        if stores and wanted and len(wanted) != len(stores):
            raise TopologyException(
                f"transform_values() got {describe_function(function)}, which has {len(wanted)} parameters "
                f"for stores ({', '.join(wanted)}), but {len(stores)} stores ({', '.join(stores)})"
            )
        names = dict(zip(wanted, stores or wanted, strict=True)) if wanted else {}
        self._parameters = tuple(names.get(name) for name in parameters)
        self.store_names: tuple[str, ...] = () if stores else tuple(wanted)

    def get(self) -> Any:
        """A new transformer."""
        return _FunctionTransformer(self._function, self._parameters)

    def __repr__(self) -> str:
        return describe_function(self._function)


def _apart(function: Callable[..., Any]) -> tuple[list[str], list[str]]:
    parameters = inspect.signature(function).parameters.values()
    names = [each.name for each in parameters if each.default is each.empty]
    return names[:2], names[2:]


class _FunctionTransformer:
    def __init__(self, function: Callable[..., Any], parameters: tuple[str | None, ...]) -> None:
        self._function = function
        self._parameters = parameters

    def init(self, context: Any) -> None:
        self._arguments = [
            context if store is None else context.get_state_store(store) for store in self._parameters
        ]

    def transform(self, key: Any, value: Any) -> Any:
        return self._function(key, value, *self._arguments)


def is_function_of_rows(supplier: Any) -> TypeGuard[Callable[..., Any]]:
    """Whether it takes a key and a value, instead of being a supplier without parameters."""
    if isinstance(supplier, type) or not callable(supplier) or callable(getattr(supplier, "get", None)):
        return False
    try:
        parameters = inspect.signature(supplier).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(each.default is each.empty and each.kind in _POSITIONAL for each in parameters)


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
