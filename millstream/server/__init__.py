"""The query server: a client's stores over HTTP, and `RemoteStore`, which reads them from anywhere.

Optional: `query.server.enabled` turns it on. Layout: `application` is the ASGI application, and `serving`
runs it on a port. `connections` decides who may connect. `entrance` decides which requests are admitted and
which clients this one queries; `proof` authenticates both. `routes` parses requests; `codec`, `pages` and
`answers` define what goes over the wire. None of these four does any input or output. `service` answers each
route, and `asking` those about entries. They use `reading`, which reads local stores and knows who has the
rest, and `peers`, which queries other clients over a `wire`. `remote` has `RemoteStore`, the client side.
"""

from millstream.server.application import QueryApplication
from millstream.server.entrance import Limits
from millstream.server.remote import RemoteStore
from millstream.server.serving import QueryServer

__all__ = ["Limits", "QueryApplication", "QueryServer", "RemoteStore"]
