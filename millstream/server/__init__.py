"""The query server: a client's stores over HTTP, and `RemoteStore`, which reads them from anywhere.

Optional: a client has one with `query.server.enabled`. Layout: `application` is the ASGI application, which
`serving` puts on a port; `connections` decides who may connect, `entrance` who is let in, `allowed` and
`proof` whom this client asks and believes; `routes`, `asked`, `codec`, `shapes`, `answers` and `pages` say
what requests and answers look like, and do nothing; `service` has a file for each kind of question
(`one_key`, `many_keys`, `ranges`, `about`), and these share `reach`: `reads` reads here, `places` knows who
has what, `peers` asks them; `remote` has `RemoteStore`.
"""

from millstream.server.application import QueryApplication
from millstream.server.limits import Limits
from millstream.server.remote import RemoteStore
from millstream.server.serving import QueryServer

__all__ = ["Limits", "QueryApplication", "QueryServer", "RemoteStore"]
