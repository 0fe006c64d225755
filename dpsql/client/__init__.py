"""A served database in Python: the functions of this package over a connection to `dpsql serve`."""

from dpsql.client.connection import Served, connect

__all__ = ["Served", "connect"]
