"""What Flight's errors are here: a closed list, of classes alone that bring no Python trace with them.

Every other exception that leaves a method is written to the client by pyarrow with its trace and the paths in it, also those of
methods that nobody wrote. So each method of the service is guarded (`dpsql.serve.flight.service`). Of GetSchema even these are
written with their trace, so it is refused before (`dpsql.serve.flight.login`).
"""

from __future__ import annotations

from typing import Final

from pyarrow import flight

from dpsql.serve.passed import Kind, Refused

_OF_KIND: Final[dict[Kind, type[flight.FlightError]]] = {
    "syntax": flight.FlightServerError,
    "no_table": flight.FlightServerError,
    "no_column": flight.FlightServerError,
    "unsupported": flight.FlightServerError,
    "refused": flight.FlightUnauthorizedError,
    "busy": flight.FlightUnavailableError,
    "stopped": flight.FlightTimedOutError,
    "failed": flight.FlightInternalError,
}
FAILED: Final = "the server could not answer this"


def fault_of(error: BaseException) -> flight.FlightError:
    """Return what is said of an error: a refusal by its kind, and of anything else that it was one.

    Privacy
    -------
    None: no word of an error that is not a refusal gets out.
    """
    if isinstance(error, flight.FlightError):
        return error
    if isinstance(error, Refused):
        return _OF_KIND[error.kind](error.text)
    return flight.FlightInternalError(FAILED)


def denied() -> flight.FlightError:
    """Return what is said of a wrong token, of no token, and of a name that nobody has: the same."""
    return flight.FlightUnauthenticatedError("access denied (name, token, or a token that is over)")


def unserved() -> flight.FlightError:
    """Return what is said of the one method that is not served."""
    return flight.FlightServerError("GetSchema is not answered here: GetFlightInfo says the columns, too, and buys nothing")


def too_many(name: str) -> flight.FlightError:
    """Return what is said where an analyst has as many connections as she may."""
    return flight.FlightUnavailableError(f"too many connections of {name}: close an earlier one")
