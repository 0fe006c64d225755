"""Everything between the text of an analyst and what is run: DuckDB's parser, an allowlist over its tree, names resolved."""

from dpsql.serve.gate.calls import Call
from dpsql.serve.gate.decide import Accepted, Refused, decide
from dpsql.serve.gate.seen import view_of
from dpsql.serve.gate.view import View

__all__ = ["Accepted", "Call", "Refused", "View", "decide", "view_of"]
