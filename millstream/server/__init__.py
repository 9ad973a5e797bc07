"""The query server: a client's stores over HTTP, and `RemoteStore`, which reads them from anywhere.

Optional: a client has one with `query.server.enabled`. Layout: `application` is the ASGI application, which
`serving` puts on a port; `connections` decides who may connect, `entrance` who is let in and whom this client
asks, `proof` how both are believed; `routes` says what a request reads, `codec`, `pages` and `answers` what
goes over the wire, and these do nothing; `service` answers each route, `asking` those about entries: from
`reading`, which reads here and knows who has the rest, and from `peers`, who are asked over a `wire`;
`remote` has `RemoteStore`, the other end.
"""

from millstream.server.application import QueryApplication
from millstream.server.entrance import Limits
from millstream.server.remote import RemoteStore
from millstream.server.serving import QueryServer

__all__ = ["Limits", "QueryApplication", "QueryServer", "RemoteStore"]
