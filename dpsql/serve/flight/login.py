"""Who is there: a name and a token in the head of a call, or a token alone. Each call is looked at: what is revoked is over.

Privacy: None: names and tokens go to the file of analysts, which compares them (`dpsql.serve.analysts`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyarrow import flight

from dpsql.serve.flight.faults import denied, fault_of, too_many, unserved
from dpsql.serve.flight.frames import HEADER
from dpsql.serve.passed import Keys

_HEADER: Final = "authorization"
_BASIC, _BEARER = "basic ", "bearer "
_LONGEST: Final = 1_000


@dataclass(frozen=True)
class Visitor:
    """Who came in: name, and number of the token."""

    name: str
    number: int


class Call(flight.ServerMiddleware):
    """One call: whose it is, on which connection, and what is told once it is over."""

    def __init__(self, visitor: Visitor, connection: str, told: dict[str, str]) -> None:
        self.visitor, self.connection, self._told = visitor, connection, told
        self.over: Callable[[], object] = _nothing

    def sending_headers(self) -> dict[str, str]:
        """Return what goes before the answer."""
        return self._told

    def call_completed(self, exception: Any) -> None:
        """Say that it is over."""
        self.over()


class Login(flight.ServerMiddlewareFactory):
    """Lets calls in.

    Parameters
    ----------
    keys : Keys
    admit : callable
        Told of a connection that it is this analyst's; False: she has too many of them.

    Notes
    -----
    A client that shows name and token once, in the handshake, is told to show the token alone from then on: it goes back to who has
    just sent it. So there are no sessions that somebody would have to end when a token is revoked.
    """

    def __init__(self, keys: Keys, admit: Callable[[str, str], bool]) -> None:
        self._keys, self._admit = keys, admit

    def start_call(self, info: flight.CallInfo, headers: Mapping[str, Sequence[str | bytes]]) -> Call:
        """Return whose call it is; raises where nobody is let in."""
        try:
            visitor, told = self._known(headers)
            connection = str(headers[HEADER][-1])  # the last one is the front's
            if not self._admit(connection, visitor.name):
                raise too_many(visitor.name)
            if info.method == flight.FlightMethod.GET_SCHEMA:
                raise unserved()
            return Call(visitor, connection, told)
        except flight.FlightError:
            raise
        except Exception as error:  # nothing of it gets out
            raise fault_of(error) from None

    def stays(self, visitor: Visitor) -> None:
        """Raise where a token is no longer the analyst's."""
        if self._keys.number(visitor.name) != visitor.number:
            raise denied()

    def _known(self, headers: Mapping[str, Sequence[str | bytes]]) -> tuple[Visitor, dict[str, str]]:
        shown = [str(value) for value in headers.get(_HEADER, ())]
        if len(shown) != 1 or len(shown[0]) > _LONGEST:
            raise denied()
        scheme = shown[0][: len(_BEARER)].lower()
        if scheme.startswith(_BASIC):
            name, token = _pair(shown[0][len(_BASIC) :])
            number = self._keys.admits(name, token)
            if number is not None and token:
                # the client shows the token alone from then on
                return Visitor(name, number), {_HEADER: f"Bearer {token}"}
        elif scheme == _BEARER:
            owner = self._keys.of_token(shown[0][len(_BEARER) :])
            if owner is not None:
                return Visitor(*owner), {}
        raise denied()


class Handshake(flight.ServerAuthHandler):
    """Lets the handshake itself through: who calls was looked at before (`Login`)."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """Do nothing."""

    def is_valid(self, token: bytes) -> bytes:
        """Return nothing."""
        return b""


def _nothing() -> None:
    """Stand where nobody is told."""


def _pair(text: str) -> tuple[str, str]:
    """Return a name and a token of what HTTP's basic authentication sends."""
    try:
        padded = text + "=" * (-len(text) % 4)  # clients in Go leave the padding out
        name, colon, token = base64.b64decode(padded, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise denied() from None
    if not colon:
        raise denied()
    return name, token
