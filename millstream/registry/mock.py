"""What `mock://name` stands for: a registry in this process, which forgets all when the process ends.

It answers over HTTP on the loopback address, as a real one does: Spark's Java process asks it too.

Source: io.confluent.kafka.schemaregistry.testutil.MockSchemaRegistry.
"""

from __future__ import annotations

import threading

from millstream.registry.http import RegistryServer

__all__ = ["drop_mock_registry", "mock_registry"]

_lock = threading.Lock()
_servers: dict[str, RegistryServer] = {}


def mock_registry(scope: str) -> str:
    """The address of the registry of this name; it is started the first time."""
    with _lock:
        if scope not in _servers:
            _servers[scope] = RegistryServer()
        return _servers[scope].url


def drop_mock_registry(scope: str) -> None:
    """End the registry of this name and forget what it had. Idempotent.

    Source: MockSchemaRegistry.dropScope.
    """
    with _lock:
        server = _servers.pop(scope, None)
    if server is not None:
        server.close()
