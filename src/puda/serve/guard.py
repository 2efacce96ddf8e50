"""What every request must pass before it is answered, and what every answer says to browsers."""

import asyncio
import hmac
import json
from collections.abc import Iterable
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from puda.serve.models import API

MAX_BODY = 64_000
"""Bytes of a request's body."""

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

SAID = [
    (name.lower().encode(), value.encode())
    for name, value in {
        "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
        " img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cache-Control": "no-cache",
    }.items()
]


class Refused(Exception):
    """A request that is not answered: with which status, and why."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Guard:
    """Refuses what does not come from our own page or from someone who knows the token.

    A page of another site can make a browser send requests here. It cannot send JSON or the token
    without our consent, which we never give; and a name of its own that it points at this machine
    is not among `hosts`.
    """

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str] | None, token: str | None) -> None:
        self.app, self.token = app, token
        self.hosts = None if hosts is None else frozenset(hosts)  # None: any, the token decides

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request or refuse it."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def say(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *SAID]
            await send(message)

        try:
            self._check(scope)
            try:
                await self.app(scope, _bounded(receive), say)
            except asyncio.CancelledError:
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "puda serve is stopping") from None
        except Refused as error:
            body = json.dumps({"error": error.reason}).encode()
            headers = [(b"content-type", b"application/json")]
            if error.status == HTTPStatus.UNAUTHORIZED:
                headers.append((b"www-authenticate", b"Bearer"))
            await say({"type": "http.response.start", "status": error.status, "headers": headers})
            await say({"type": "http.response.body", "body": body})

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self.hosts is not None and _name(host) not in self.hosts:
            raise Refused(
                HTTPStatus.MISDIRECTED_REQUEST, "this is not the address puda serves: see its start"
            )
        if not scope["path"].startswith(API):
            return
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise Refused(HTTPStatus.FORBIDDEN, "requests of other sites are not answered")
        if self.token is not None:
            given = headers.get("authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode(), self.token.encode()):
                raise Refused(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong")
        if scope["method"] in ("GET", "HEAD"):
            return
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise Refused(HTTPStatus.FORBIDDEN, "requests of other sites are not answered")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if scope["method"] == "POST" and kind != "application/json":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send JSON, as application/json")
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > MAX_BODY:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _TOO_LARGE)


_TOO_LARGE = f"a request has at most {MAX_BODY:,} bytes"


def _name(host: str) -> str:
    """Return a Host header without its port."""
    end = host.rfind(":")
    return (host[:end] if end > host.rfind("]") else host).lower()


def _bounded(receive: Receive) -> Receive:
    """Receive a body, but not without end."""
    seen = 0

    async def take() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > MAX_BODY:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _TOO_LARGE)
        return message

    return take
