"""Who an analyst is: a file of names, roles and salted hashes of tokens. A token is shown once, when it is made.

The file is TOML, so a person can read it; dpsql writes it whole, to a draft that then takes its place, for the owner alone (mode
600). A token is 256 random bits, so there is nothing to guess, and one salted SHA-256 is enough: slow hashes are for passwords.

Privacy: None: no data in here. Tokens are never written, logged or shown again.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import threading
import tomllib
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dpsql.errors import ArgumentError
from dpsql.text.names import fold, is_analyst

ROLES = ("analyst", "custodian")
PREFIX = "dpsql_"
"""Tokens begin with it: programs that look for secrets in files and logs know them by it."""
FILE = "analysts.toml"
_DURATION = re.compile(r"([1-9][0-9]{0,4})([hdw])")
_UNITS = {"h": dt.timedelta(hours=1), "d": dt.timedelta(days=1), "w": dt.timedelta(weeks=1)}
_HEAD = "# Analysts of a served database: `dpsql analyst add|list|revoke`. Hashes of tokens, never a token.\n"
_LONGEST = 1 << 20
_OTHERS_MAY_WRITE = 0o022


@dataclass(frozen=True)
class Analyst:
    """One line of the file.

    Parameters
    ----------
    name : str
        Letters, digits, '_', '-' and '.', at most 63, beginning with a letter or digit.
    role : {'analyst', 'custodian'}
    salt, hashed : str
        Hexadecimal; SHA-256 of the salt and the token.
    made, expires, revoked : datetime
        UTC; None for what has not happened, or never will.
    """

    name: str
    role: str
    salt: str = dataclasses.field(repr=False)
    hashed: str = dataclasses.field(repr=False)
    made: dt.datetime
    expires: dt.datetime | None = None
    revoked: dt.datetime | None = None

    def state(self, now: dt.datetime) -> str:
        """Return 'valid', 'expired' or 'revoked'."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and now >= self.expires else "valid"


class Analysts:
    """The file of analysts, read again whenever it has changed.

    Parameters
    ----------
    path : Path or str
    now : callable, optional
        The time, in UTC.

    Raises
    ------
    ArgumentError
        There is no such file, it is no such file, or others than its owner may write it.
    """

    def __init__(self, path: Path | str, now: Callable[[], dt.datetime] | None = None) -> None:
        self.path = Path(path).expanduser()
        self._now = now or _utc
        self._guard = threading.Lock()
        self._seen: tuple[int, int, int, int] | None = None
        self._held: dict[str, Analyst] = {}
        self._read()

    def who(self, token: str) -> Analyst | None:
        """Return whose token this is; None where it is nobody's, expired or revoked, or the file cannot be read now.

        Every analyst is compared, so the time does not tell which one it was.
        """
        found: Analyst | None = None
        given = token.encode("utf-8", "surrogatepass")
        for one in self.all():
            if hmac.compare_digest(_hash(one.salt, given), one.hashed):
                found = one
        return found if found is not None and found.state(self._now()) == "valid" else None

    def still(self, one: Analyst) -> bool:
        """Return whether a token may still come in, by the entry that it came in with. Asked for each statement of a session.

        That is: the entry has the same hash and role, and is neither revoked nor expired. A name that is added anew is another
        token's: the sessions of the one before end.
        """
        found = next((other for other in self.all() if other.name == one.name), None)
        if found is None or (found.salt, found.hashed, found.role) != (one.salt, one.hashed, one.role):
            return False
        return found.state(self._now()) == "valid"

    def all(self) -> list[Analyst]:
        """Return all analysts, revoked and expired ones too, by name; none where the file cannot be read now: nobody comes in."""
        with self._guard:
            try:
                if _state(self.path) != self._seen:
                    self._read()
            except (OSError, ArgumentError):
                self._held, self._seen = {}, None
            return [self._held[name] for name in sorted(self._held)]

    def _read(self) -> None:
        self._held, self._seen = read(self.path)


def add(
    path: Path | str, name: str, *, custodian: bool = False, expires: str | None = None, now: dt.datetime | None = None
) -> str:
    """Add an analyst, making the file where there is none, and return the token: the only time that it is seen.

    Parameters
    ----------
    expires : str, optional
        How long the token holds: '12h', '90d', '8w'. Without it: until it is revoked.

    Raises
    ------
    ArgumentError
        The name is none, or taken by one who is not revoked; or the file cannot be read or written.
    """
    if not is_analyst(name):
        raise ArgumentError("name", name, "letters, digits, '_', '-' and '.' are allowed, at most 63, a letter or digit first")
    today = now or _utc()
    until = None if expires is None else today + duration(expires)
    token = PREFIX + secrets.token_urlsafe(32)
    with _changing(Path(path).expanduser()) as held:
        same = next((one for one in held.values() if fold(one.name) == fold(name)), None)
        if same is not None and (same.name != name or same.state(today) == "valid"):
            raise ArgumentError("name", name, f"there is an analyst {same.name!r} already; revoke first, or take another name")
        salt = secrets.token_hex(16)
        role = "custodian" if custodian else "analyst"
        held[name] = Analyst(name, role, salt, _hash(salt, token.encode()), today, until)
    return token


def revoke(path: Path | str, name: str, now: dt.datetime | None = None) -> Analyst:
    """Revoke an analyst's token; open sessions end with their next statement. Repeating it changes nothing.

    Raises
    ------
    ArgumentError
        There is no such analyst, or the file cannot be read or written.
    """
    with _changing(Path(path).expanduser(), new=False) as held:
        if name not in held:
            raise ArgumentError("name", name, "there is no such analyst; dpsql analyst list shows them")
        if held[name].revoked is None:
            held[name] = dataclasses.replace(held[name], revoked=now or _utc())
        return held[name]


def duration(text: str) -> dt.timedelta:
    """Return how long '90d' is: hours, days or weeks.

    Raises
    ------
    ArgumentError

    Examples
    --------
    >>> duration("90d").days, duration("8w").days
    (90, 56)
    """
    found = _DURATION.fullmatch(text)
    if not found:
        raise ArgumentError("expires", text, "a number of hours, days or weeks is required: '12h', '90d', '8w'")
    return int(found[1]) * _UNITS[found[2]]


def read(path: Path) -> tuple[dict[str, Analyst], tuple[int, int, int, int]]:
    """Return the analysts of a file by name, and the state of the file when it was read.

    Raises
    ------
    ArgumentError
        It is not there, is no such file, or others than its owner may write it.
    """
    try:
        with path.open("rb") as handle:
            about = os.fstat(handle.fileno())
            text = handle.read(_LONGEST + 1)
    except OSError as error:
        told = f"cannot be read ({error.strerror}); dpsql analyst add NAME --file {path.name} makes it"
        raise ArgumentError("analysts", str(path), told) from None
    if about.st_mode & _OTHERS_MAY_WRITE:
        raise ArgumentError("analysts", str(path), "others than its owner may write it, and so come in: chmod 600")
    try:
        if len(text) > _LONGEST:
            raise ValueError("too long")
        listed = tomllib.loads(text.decode("utf-8")).get("analysts", {})
        found = {name: _analyst(name, said) for name, said in listed.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ArgumentError("analysts", str(path), "is no file of analysts that dpsql wrote; nobody can come in") from None
    return found, _stat(about)


def _analyst(name: str, said: dict[str, object]) -> Analyst:
    """Return an entry of the file; raise ValueError where it is none."""
    times = {key: said.get(key) for key in ("made", "expires", "revoked")}
    if set(said) - {"role", "salt", "hash", *times} or not is_analyst(name) or said["role"] not in ROLES:
        raise ValueError(name)
    salt, hashed = said["salt"], said["hash"]
    if not isinstance(salt, str) or not isinstance(hashed, str) or not re.fullmatch("[0-9a-f]{64}", hashed) or len(salt) < 32:
        raise ValueError(name)
    for key, value in times.items():
        if not (isinstance(value, dt.datetime) and value.tzinfo is not None) and (value is not None or key == "made"):
            raise ValueError(name)
    return Analyst(name, str(said["role"]), salt, hashed, **times)  # type: ignore[arg-type]


@contextmanager
def _changing(path: Path, *, new: bool = True) -> Iterator[dict[str, Analyst]]:
    """Give the analysts of a file to be changed, and write them back if nothing fails; one process at a time."""
    try:
        lock = os.open(path.with_name(f".{path.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise ArgumentError("analysts", str(path), f"cannot be written ({error.strerror}); name another file") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held = {} if new and not path.exists() else read(path)[0]
        yield held
        _write(path, held)
    finally:
        os.close(lock)


def _write(path: Path, held: dict[str, Analyst]) -> None:
    """Write the file whole: to a draft for its owner alone, which then takes its place."""
    lines = [_HEAD]
    for name in sorted(held):
        one = held[name]
        times = {"made": one.made, "expires": one.expires, "revoked": one.revoked}
        lines.append(f"\n[analysts.{json.dumps(name)}]\nrole = {json.dumps(one.role)}\n")
        lines.append(f"salt = {json.dumps(one.salt)}\nhash = {json.dumps(one.hashed)}\n")
        lines += [f"{key} = {_moment(value)}\n" for key, value in times.items() if value is not None]
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as handle:
            handle.writelines(lines)
            handle.flush()
            os.fsync(handle.fileno())
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise ArgumentError("analysts", str(path), f"cannot be written ({error.strerror}); name another file") from None


def _moment(value: dt.datetime) -> str:
    return value.astimezone(dt.UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")


def _state(path: Path) -> tuple[int, int, int, int]:
    return _stat(path.stat())


def _stat(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode


def _hash(salt: str, token: bytes) -> str:
    return hashlib.sha256(salt.encode() + b":" + token).hexdigest()


def _utc() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
