"""Who may come in to a served database, and what each may ask. A token is shown once, when it is made.

A token is 256 random bits, so there is nothing to guess, and one salted SHA-256 is enough: slow hashes are for passwords.

Privacy: None: no data in here. Tokens are never written, logged or shown again.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import hmac
import re
import secrets
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from dpsql.errors import ArgumentError
from dpsql.serve.roster import FILE, MOST, Analyst, Roster, State, changing, is_epsilon, is_name, read, revoked, state_of
from dpsql.text.names import fold

PREFIX = "dpsql_"
"""Tokens begin with it: programs that look for secrets in files and logs know them by it."""
EPSILON = 0.1
"""Of one question, where a grant does not say."""
_LONGEST_TOKEN = 256
_DURATION = re.compile(r"([1-9][0-9]{0,4})([hdw])")
_UNITS = {"h": dt.timedelta(hours=1), "d": dt.timedelta(days=1), "w": dt.timedelta(weeks=1)}
_NAME = "letters a to z, digits, '_', '-' and '.' are allowed, at most 63, a letter or digit first"
_WHEN = "how long the token holds ('12h', '90d', '8w') or a day or time in UTC ('2027-12-31') is required"


def beside(database: Path | str) -> Path:
    """Return the file of analysts of a database where none is named: it lies beside it."""
    return Path(database).expanduser().with_name(FILE)


class Analysts:
    """The file of analysts, read again whenever it has changed; see `dpsql.serve.passed.Keys`.

    Where it is gone or broken nobody is let in, which is said once.

    Parameters
    ----------
    path : Path or str
    now : callable, optional
        The time, in UTC.
    say : callable, optional
        Where it is said; default: standard error.

    Raises
    ------
    ArgumentError
        There is no such file now, it is no such file, or others than its owner may read or write it.
    """

    def __init__(
        self, path: Path | str, now: Callable[[], dt.datetime] | None = None, say: Callable[[str], object] | None = None
    ) -> None:
        self.path = Path(path).expanduser().absolute()
        self._now, self._say = now or _utc, say or _stderr
        self._guard = threading.Lock()
        self._nobody = _anyone()
        self._told = ""
        self._held: Roster
        self._seen: State | None
        self._held, self._seen = read(self.path)

    def native(self, name: str) -> bytes | None:
        """Return SHA1(SHA1(token)) of a valid analyst's token; None: nobody of that name."""
        analyst = self._valid(name)
        return None if analyst is None else bytes.fromhex(analyst.native)

    def admits(self, name: str, token: str) -> int | None:
        """Return the number of a valid analyst's token if this is it; None: it is not, or there is nobody of that name.

        A token is compared in any case, so that the time does not tell whether there is somebody of that name.
        """
        analyst = self._valid(name)
        fits = _is_token(analyst or self._nobody, token)
        return analyst.number if analyst is not None and fits else None

    def of_token(self, token: str) -> tuple[str, int] | None:
        """Return whose token this is, and its number; None: nobody's. Every analyst is compared."""
        owner, now = None, self._now()
        for analyst in self._read().analysts.values():
            if _is_token(analyst, token) and analyst.state(now) == "valid":
                owner = (analyst.name, analyst.number)
        return owner

    def number(self, name: str) -> int | None:
        """Return the number of a valid analyst's token; a session whose number it is no longer is over."""
        analyst = self._valid(name)
        return None if analyst is None else analyst.number

    def granted(self, name: str) -> Mapping[str, float]:
        """Return what a valid analyst may ask: protected table, as the books spell it, to the epsilon of one question."""
        analyst = self._valid(name)
        return MappingProxyType({} if analyst is None else analyst.grants)

    def public(self) -> frozenset[str]:
        """Return the unprotected tables and views that analysts see, spelled as the books spell tables."""
        return frozenset(self._read().public)

    def all(self) -> list[Analyst]:
        """Return all analysts, revoked and expired ones too, by name."""
        analysts = self._read().analysts
        return [analysts[name] for name in sorted(analysts)]

    def _valid(self, name: str) -> Analyst | None:
        analyst = self._read().analysts.get(name)
        return analyst if analyst is not None and analyst.state(self._now()) == "valid" else None

    def _read(self) -> Roster:
        """Return what the file says now."""
        with self._guard:
            if self._seen is None or _state(self.path) != self._seen:
                try:
                    self._held, self._seen = read(self.path)
                    self._told = ""
                except ArgumentError as error:
                    # a broken file lets nobody in: what was read before may name one who was revoked since
                    self._held, self._seen = Roster(), None
                    if str(error) != self._told:
                        self._told = str(error)
                        self._say(f"nobody is let in: {error}")
            return self._held


def add(
    path: Path | str, name: str, grants: Mapping[str, float], *, expires: str | None = None, now: dt.datetime | None = None
) -> str:
    """Add an analyst, making the file where there is none, and return the token: the only time that it is seen.

    Parameters
    ----------
    grants : mapping
        Protected tables, as the books spell them, to the epsilon of one question.
    expires : str, optional
        How long the token holds, '12h', '90d', '8w', or until when. Without it: until it is revoked.

    Raises
    ------
    ArgumentError
        The name is none, or taken by one who is not revoked; a grant or the time is none; or the file cannot be read or written.
    """
    if not is_name(name):
        raise ArgumentError("name", name, _NAME)
    today = now or _utc()
    until = None if expires is None else moment(expires, today)
    for table, epsilon in grants.items():
        _check(table, epsilon)
    token = PREFIX + secrets.token_urlsafe(32)
    with changing(Path(path).expanduser(), new=True) as roster:
        # the name of one who is revoked may be given again; names that differ in case alone may not
        same = next((analyst for analyst in roster.analysts.values() if fold(analyst.name) == fold(name)), None)
        if same is not None and (same.name != name or same.state(today) == "valid"):
            told = f"there is an analyst {same.name!r} already; dpsql analyst revoke {same.name} first, or take another name"
            raise ArgumentError("name", name, told)
        roster.analysts[name] = _made(name, token, today, until, grants)
    return token


def revoke(path: Path | str, name: str, now: dt.datetime | None = None) -> Analyst:
    """Revoke an analyst's token; what she has open ends. Repeating it changes nothing.

    Raises
    ------
    ArgumentError
        There is no such analyst, or the file cannot be read or written.
    """
    with changing(Path(path).expanduser(), new=False) as roster:
        roster.analysts[name] = revoked(_known(roster, name), now or _utc())
        return roster.analysts[name]


def grant(path: Path | str, name: str, grants: Mapping[str, float]) -> Analyst:
    """Change what an analyst may ask; her token stays. A table with epsilon 0 is taken back.

    Raises
    ------
    ArgumentError
        There is no such analyst, a grant is none, or the file cannot be read or written.
    """
    for table, epsilon in grants.items():
        if epsilon != 0:
            _check(table, epsilon)
    with changing(Path(path).expanduser(), new=False) as roster:
        analyst = _known(roster, name)
        kept = {table: epsilon for table, epsilon in {**analyst.grants, **grants}.items() if epsilon != 0}
        roster.analysts[name] = dataclasses.replace(analyst, grants=kept)
        return roster.analysts[name]


def publish(path: Path | str, table: str, *, withdraw: bool = False) -> bool:
    """Let analysts see an unprotected table or view, or no longer; return whether that changed anything.

    Parameters
    ----------
    table : str
        As the books spell tables ('main.wards'); whoever calls has looked that it is not protected.
    """
    with changing(Path(path).expanduser(), new=not withdraw) as roster:
        changed = (table in roster.public) == withdraw
        (roster.public.discard if withdraw else roster.public.add)(table)
        return changed


def moment(text: str, now: dt.datetime) -> dt.datetime:
    """Return until when a token holds: '90d' from now on, or a day or time in UTC.

    Raises
    ------
    ArgumentError
        It is none, or over.

    Examples
    --------
    >>> today = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
    >>> str(moment("90d", today)), str(moment("2027-12-31", today))
    ('2027-01-30 00:00:00+00:00', '2027-12-31 00:00:00+00:00')
    """
    if match := _DURATION.fullmatch(text):
        return now + int(match[1]) * _UNITS[match[2]]
    try:
        until = dt.datetime.fromisoformat(text)
        until = (until if until.tzinfo is not None else until.replace(tzinfo=dt.UTC)).astimezone(dt.UTC)
    except (ValueError, OverflowError):
        raise ArgumentError("expires", text, _WHEN) from None
    if until <= now:
        raise ArgumentError("expires", text, f"that is over; {_WHEN}")
    return until


def _check(table: str, epsilon: object) -> None:
    if not is_epsilon(epsilon):
        told = f"the epsilon of one question is required, above 0, at most {MOST:g} ({EPSILON} is usual)"
        raise ArgumentError(f"grant on {table}", epsilon, told)


def _known(roster: Roster, name: str) -> Analyst:
    if name not in roster.analysts:
        raise ArgumentError("name", name, "there is no such analyst; dpsql analyst list DATABASE shows them")
    return roster.analysts[name]


def _made(name: str, token: str, today: dt.datetime, until: dt.datetime | None, grants: Mapping[str, float]) -> Analyst:
    salt, secret = secrets.token_hex(16), token.encode()
    native = hashlib.sha1(hashlib.sha1(secret, usedforsecurity=False).digest(), usedforsecurity=False).hexdigest()
    return Analyst(name, secrets.randbits(53), salt, _hash(salt, secret), native, today, until, grants=dict(grants))


def _is_token(analyst: Analyst, token: str) -> bool:
    """Return whether a token is an analyst's, in a time that does not tell how much of it is right."""
    secret = token[: _LONGEST_TOKEN + 1].encode("utf-8", "surrogatepass")
    return hmac.compare_digest(_hash(analyst.salt, secret), analyst.hash or "-" * 64) and len(token) <= _LONGEST_TOKEN


def _hash(salt: str, token: bytes) -> str:
    return hashlib.sha256(salt.encode() + b":" + token).hexdigest()


def _anyone() -> Analyst:
    """Return an analyst whose token nobody has."""
    return _made("", secrets.token_urlsafe(32), _utc(), None, {})


def _utc() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _state(path: Path) -> State | None:
    try:
        return state_of(path.stat())
    except OSError:
        return None


def _stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")
