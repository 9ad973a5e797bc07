"""SQL over the stores of a running application, by DuckDB in this process, for the user's own queries.

The tables that the query names are fetched whole, as Arrow. (`KafkaStreams.sql()` reads stores where they
are, and shuts DuckDB in: a program's queries may come from others.)
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from millstream.cli.asking import Client, path_of
from millstream.errors import SetupException, StreamsException
from millstream.foreign import printable_lines

__all__ = ["run_sql"]


def run_sql(
    query: str, url: str, token: str | None, *, stale: bool
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The names of the columns, and the rows.

    Raises:
        SetupException: DuckDB is not installed.
        StreamsException: the query cannot be understood or computed, or a store not be read.
    """
    if find_spec("duckdb") is None:
        raise SetupException("millstream query sql needs DuckDB: pip install 'millstream[sql]'")
    import duckdb

    from millstream.server.remote import RemoteStore

    with Client(url, token) as client:
        stores = {each["store"]: each for each in client.get(path_of("stores"))[1].get("stores", [])}
    with duckdb.connect(config={"autoinstall_known_extensions": False}) as database:
        try:
            named = {name.strip('"').lower() for name in database.get_table_names(query)}
        except duckdb.Error as error:
            raise StreamsException(
                f"DuckDB does not understand the query: {printable_lines(str(error))}"
            ) from None
        for name, store in stores.items():
            if name.lower() in named:
                timestamped = store["kind"] != "session"
                with RemoteStore(url, name, token=token, stale=stale, timestamped=timestamped) as remote:
                    database.register(name, remote.to_arrow())
        try:
            answer = database.sql(query)
            if answer is None:
                raise StreamsException("the query gives nothing; it has to be a SELECT")
            return list(answer.columns), answer.fetchall()
        except duckdb.Error as error:
            known = ", ".join(sorted(stores)) or "none"
            raise StreamsException(
                f"DuckDB cannot answer: {printable_lines(str(error))} (stores: {known})"
            ) from None
