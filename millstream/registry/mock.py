"""The registry behind `mock://name`: in this process, and lost when the process ends.

It serves HTTP on the loopback address, like a real one, because Spark's Java process uses it too.

Source: io.confluent.kafka.schemaregistry.testutil.MockSchemaRegistry.
"""

from __future__ import annotations

import threading

from millstream.registry.http import RegistryServer

__all__ = ["drop_mock_registry", "mock_registry"]

_lock = threading.Lock()
_servers: dict[str, RegistryServer] = {}


def mock_registry(scope: str) -> str:
    """The address of the registry with this name, which is started on first use."""
    with _lock:
        if scope not in _servers:
            _servers[scope] = RegistryServer()
        return _servers[scope].url


def drop_mock_registry(scope: str) -> None:
    """Stop the registry with this name and discard its contents. Idempotent.

    Source: MockSchemaRegistry.dropScope.
    """
    with _lock:
        server = _servers.pop(scope, None)
    if server is not None:
        server.close()
