"""The query server: a client's stores over HTTP, and `RemoteStore`, which reads them from anywhere.

Optional: a client has one with `query.server.enabled`. Layout: `application` is the ASGI application, which
`serving` puts on a port; `routes`, `codec`, `answers` and `pages` say what requests and answers look like,
and do nothing; `service` decides who answers, `reads` reads here, `peers` asks others; `remote` has
`RemoteStore`.
"""

from millstream.server.application import QueryApplication
from millstream.server.remote import RemoteStore
from millstream.server.service import Limits
from millstream.server.serving import QueryServer

__all__ = ["Limits", "QueryApplication", "QueryServer", "RemoteStore"]
