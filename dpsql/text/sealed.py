"""Encrypted Parquet files: which ones are, and what DuckDB is told to read or write them.

A release store is encrypted where it holds the file `MARK`, itself encrypted: whatever is written below it is, then. A file that is
encrypted is known by its first bytes, so both kinds are read. The key is DuckDB's, under the name `KEY`, and in no text.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

KEY = "dpsql_store"
MARK = ".encrypted.parquet"
SEALED = f", ENCRYPTION_CONFIG {{footer_key: '{KEY}'}}"
_MAGIC = b"PARE"
_SALT = b"dpsql release store"  # of all stores: the key is to be random, and whoever copies one file has no other to look for
_COST = {"n": 1 << 15, "r": 8, "p": 1, "maxmem": 1 << 26}


def derived(key: str) -> str:
    """Return the key of a release store that goes with the key of a database: AES-256, in base64, by scrypt."""
    return base64.b64encode(hashlib.scrypt(key.encode(), salt=_SALT, dklen=32, **_COST)).decode()


def is_sealed(path: Path) -> bool:
    """Return whether a file is an encrypted Parquet file."""
    try:
        with path.open("rb") as handle:
            return handle.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def to_read(path: Path) -> str:
    """Return what `read_parquet` is told besides the name of a file."""
    return f", encryption_config = system.main.struct_pack(footer_key := '{KEY}')" if is_sealed(path) else ""


def to_write(path: Path) -> str:
    """Return what COPY is told besides the format, for a file in a store or in a folder of it."""
    return SEALED if any((folder / MARK).exists() for folder in (path.parent, path.parent.parent)) else ""

