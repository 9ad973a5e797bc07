"""How commands query a running client: its query server, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlencode

import typer

from millstream.errors import ConfigException, StreamsException

if TYPE_CHECKING:
    from millstream.remote.http_wire import Deadline

__all__ = ["CaFile", "Client", "Token", "Url", "deadline_of_one", "is_answer", "path_of"]

_TIMEOUT_S = 10.0

Url = Annotated[
    str,
    typer.Option(
        "--url",
        "-u",
        envvar="MILLSTREAM_URL",
        show_envvar=True,
        help="The query server of any client of the application.",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="MILLSTREAM_TOKEN",
        show_envvar=True,
        help="The server's token (query.server.token). It is safer in the environment: other users can "
        "see arguments.",
    ),
]
CaFile = Annotated[
    str | None,
    typer.Option(
        "--ca-file",
        metavar="FILE",
        envvar="MILLSTREAM_CA_FILE",
        show_envvar=True,
        help="The certificate authorities to trust for https, in PEM. Default: those that this machine "
        "trusts.",
    ),
]
URL = "http://127.0.0.1:7070"


def path_of(*parts: str, **given: object) -> str:
    """A path below /v1, percent-encoded, with the parameters that are not None."""
    query = urlencode({name.rstrip("_"): _text(value) for name, value in given.items() if value is not None})
    return "/v1/" + "/".join(quote(part, safe="") for part in parts) + (f"?{query}" if query else "")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextmanager
def _wrong(option: str) -> Iterator[None]:
    """What is wrong with a value is an error of its option."""
    try:
        yield
    except ConfigException as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


class Client:
    """A client of one query server.

    Args:
        ca_file: the certificate authorities to trust, in PEM; None: those that this machine trusts.

    Raises:
        typer.BadParameter: the address, the token or the file is not valid.
    """

    def __init__(self, url: str, token: str | None, ca_file: str | None = None) -> None:
        from millstream.remote.http_wire import Wire, base_of, trusted_at
        from millstream.remote.proof import checked_token

        with _wrong("--url"):
            self._base = base_of(url)
        with _wrong("--ca-file"):
            tls = trusted_at(self._base, ca_file)
        with _wrong("--token"):
            self._wire = Wire(self._base, checked_token(token), tls=tls)
        self._has_token = bool(token)

    @property
    def url(self) -> str:
        """The server's address."""
        return str(self._base)

    def get(
        self, path: str, *, may_be: tuple[int, ...] = (), deadline: Deadline | None = None
    ) -> tuple[int, Mapping[str, Any]]:
        """Status and body of an answer that is not an error; these statuses may be answers too.

        Args:
            deadline: shared by several requests; None: ten seconds for this one.

        Raises:
            StreamsException, IllegalStateException, ValueError: the server's error, or there is no answer.
        """
        return self._ask("GET", path, None, may_be, deadline)

    def post(self, path: str, body: Mapping[str, Any], *, timeout_s: float = _TIMEOUT_S) -> Mapping[str, Any]:
        """The answer to a request that changes the client, or is too long for a URL."""
        from millstream.remote.http_wire import Deadline

        return self._ask("POST", path, json.dumps(body).encode("ascii"), (), Deadline(timeout_s))[1]

    def close(self) -> None:
        """Idempotent."""
        self._wire.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        may_be: tuple[int, ...],
        deadline: Deadline | None = None,
    ) -> tuple[int, Mapping[str, Any]]:
        from millstream.remote.answers import exception_from
        from millstream.remote.http_wire import WireError

        try:
            reply = self._wire.ask(method, path, deadline=deadline or deadline_of_one(), body=body)
        except WireError as error:
            raise StreamsException(
                f"{error}. Is a client running there, with a query server (`millstream run --serve 7070`, or "
                "the setting query.server.enabled)? Set its address with --url or MILLSTREAM_URL"
            ) from error
        if is_answer(reply.status, reply.body, may_be):
            return reply.status, reply.body
        if "error" in reply.body or reply.status >= 400:
            if reply.status == 401 and self._has_token:
                raise StreamsException(
                    f"the query server at {self.url} does not accept this token; set --token or "
                    "MILLSTREAM_TOKEN to its query.server.token"
                )
            raise _explained(exception_from(reply.status, reply.body, self.url), reply.status)
        return reply.status, reply.body


def deadline_of_one() -> Deadline:
    """A deadline from now on, for one request or a few related ones."""
    from millstream.remote.http_wire import Deadline

    return Deadline(_TIMEOUT_S)


def is_answer(status: int, body: Mapping[str, Any], may_be: tuple[int, ...]) -> bool:
    """Whether this is an answer, although its status is an error's.

    A client that is not ready reports its health with 503; a client that is too busy, or a proxy, also sends
    503.
    """
    return status in may_be and bool(body) and "error" not in body


def _explained(error: Exception, status: int) -> Exception:
    if status == 401:
        return StreamsException(f"{error}; set it with --token or MILLSTREAM_TOKEN")
    return error if isinstance(error, StreamsException) else StreamsException(str(error))
