"""Apache Spark counts rows that it has: statements in its dialect, arrays of counters on its workers, integers to the driver."""
