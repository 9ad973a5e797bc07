"""The query server: a client's stores over HTTP, and `RemoteStore`, which reads them from anywhere.

Optional: `query.server.enabled` turns it on. Layout: `application` is the ASGI application, and `serving`
runs it on a port. `connections` decides who may connect. `entrance` decides which requests are admitted and
which clients this one queries. `service` answers each route: `asking` those about entries, `sql` queries,
`streaming` what is sent piece by piece, in one of the `forms`, and `dashboard` the dashboard. They use
`reading`, which reads local stores and knows who has the rest, and `peers`, which queries other clients.
`openapi` describes all paths. What travels between two ends, and `RemoteStore`, is in `millstream.remote`.
"""

from millstream.remote.store import RemoteStore
from millstream.server.application import QueryApplication
from millstream.server.entrance import Limits
from millstream.server.serving import QueryServer

__all__ = ["Limits", "QueryApplication", "QueryServer", "RemoteStore"]
