"""What vulture cannot see the use of: `vulture dpsql udfs examples .ci/allowed_unused.py` takes what is named here as used.

A name comes in only with the reason of its group. What tests alone use belongs into the tests.
"""

# Python calls them: `dpsql.load` and the names of the package, when they are first asked for (PEP 562).
__getattr__, __dir__

# Registered by their decorator: at the end of the process, and for keys of the prompt.
_close_idle, _

# The registries find them by a text: methods ("module:Class", dpsql/methods/__init__.py), answers (dpsql/door/dispatch.py).
AggregateSeeded, DpcopulaKendall, GaussianCopula, SmoothedHistogram, EmpiricalCdf, PerturbedHistogram, BetaBinomial
PoissonGamma, LatentClass, Modips, StableSelection, WeakDomain, export

# A type that is named in a text, for `typing.cast`.
OneHotMethod

# Interfaces of others that call or read them: dbt-duckdb (a plugin), tqdm (a bar).
initialize, configure_connection, configure_cursor, monitor_interval, bar_format, ncols

# pyarrow calls them: the methods of Flight, and what a call goes through before.
sending_headers, call_completed, exception, start_call, authenticate, incoming, outgoing
get_flight_info, do_get, do_put, do_action, list_actions, list_flights, criteria, do_exchange

# DuckDB looks frames up among the variables of the function that runs the statement.
__dpsql_frame_0, __dpsql_frame_1, __dpsql_frame_2, __dpsql_frame_3
__dpsql_frame_4, __dpsql_frame_5, __dpsql_frame_6, __dpsql_frame_7

# Fields of a result that is returned to SQL as a whole (`dp_combine`).
standard_error

# Left for the benchmarks, which ask a running instance how long each stage took.
last_seconds, last_peak_mb

# Python's socketserver asks for them: whether threads end with the process, how many connections may wait.
daemon_threads, request_queue_size
