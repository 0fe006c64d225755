"""The methods of Flight: each says who calls, hands on what was sent, and gives an answer or an error of the list."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

from pyarrow import flight

from dpsql.serve.flight.commands import ACTIONS, Commands
from dpsql.serve.flight.faults import FAILED, fault_of
from dpsql.serve.flight.front import Front
from dpsql.serve.flight.login import Call, Handshake, Login, Visitor
from dpsql.serve.limits import until_due
from dpsql.serve.passed import Refused

Sent = ParamSpec("Sent")
Given = TypeVar("Given")
_WHO = "who"
_NO_SQL = "only Flight SQL is answered here: use a client of Flight SQL, as ADBC's"


def guarded(
    method: Callable[Concatenate[Service, Visitor, Sent], Given],
) -> Callable[Concatenate[Service, flight.ServerCallContext, Sent], Given]:
    """Return a method that knows who calls, answers at its time, and raises errors of the list alone."""

    def answered(self: Service, context: flight.ServerCallContext, /, *sent: Sent.args, **named: Sent.kwargs) -> Given:
        begun = time.monotonic()
        try:
            call = context.get_middleware(_WHO)
            answer = method(self, call.visitor, *sent, **named)
            self.due(begun)
            self.login.stays(call.visitor)
        except Exception as error:  # nothing of it gets out: `fault_of`
            self.due(begun)
            raise fault_of(error) from None
        return answer

    return answered


class Service(flight.FlightServerBase):
    """Flight's server; it listens once it is made.

    Parameters
    ----------
    location : str
        Of a socket that nobody reaches but the front.
    login : Login
    commands : Commands
    front : Front
    every : float
        An answer leaves at a whole multiple of so many seconds after its question came; 0: at once.
    """

    def __init__(self, location: str, login: Login, commands: Commands, front: Front, every: float = 0.0) -> None:
        self.login, self._commands, self._front, self._every = login, commands, front, every
        self._answers = itertools.count()
        super().__init__(location, auth_handler=Handshake(), middleware={_WHO: login})

    def due(self, begun: float) -> None:
        """Wait until an answer may leave."""
        if self._every > 0:
            time.sleep(until_due(self._every, time.monotonic() - begun))

    @guarded
    def get_flight_info(self, visitor: Visitor, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        """Describe the answer of a command, and give the ticket for it."""
        schema, ticket = self._commands.info(visitor, _command(descriptor))
        return flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(ticket, [])])

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        """Answer."""
        schema, batches = self._answer(context, ticket)
        call, number = context.get_middleware(_WHO), next(self._answers)
        call.over = lambda: self._front.handed(call.connection, number, over=True)
        self._front.handed(call.connection, number)  # its schema goes first
        return flight.GeneratorStream(schema, self._handed(call, number, batches))

    @guarded
    def _answer(self, visitor: Visitor, ticket: flight.Ticket) -> tuple[Any, Iterator[Any]]:
        return self._commands.answer(visitor, ticket.ticket)

    def _handed(self, call: Call, number: int, batches: Iterator[Any]) -> Iterator[Any]:
        """Hand the pieces of an answer over, and note since when one is not taken."""
        try:
            for batch in batches:
                self._front.handed(call.connection, number)
                yield batch
        except Exception:  # nothing of it gets out
            raise flight.FlightInternalError(FAILED) from None

    @guarded
    def do_put(self, visitor: Visitor, descriptor: flight.FlightDescriptor, reader: Any, writer: Any) -> None:
        """Take the values of a prepared statement."""
        self._commands.put(visitor, _command(descriptor), (chunk.data for chunk in reader))

    @guarded
    def do_action(self, visitor: Visitor, action: flight.Action) -> list[bytes]:
        """Prepare a statement, or forget it."""
        return self._commands.act(visitor, action.type, action.body.to_pybytes())

    @guarded
    def list_actions(self, visitor: Visitor) -> list[tuple[str, str]]:
        """Return the actions that there are."""
        return list(ACTIONS.items())

    @guarded
    def list_flights(self, visitor: Visitor, criteria: bytes) -> list[flight.FlightInfo]:
        """Refuse."""
        raise Refused("unsupported", _NO_SQL)

    @guarded
    def do_exchange(self, visitor: Visitor, descriptor: flight.FlightDescriptor, reader: Any, writer: Any) -> None:
        """Refuse."""
        raise Refused("unsupported", _NO_SQL)


def _command(descriptor: flight.FlightDescriptor) -> bytes:
    command: bytes | None = descriptor.command
    if not command:
        raise Refused("unsupported", _NO_SQL)
    return command
