"""The books: budgets, charges and declared domains in the database, chained by hashes, with a hard limit."""
