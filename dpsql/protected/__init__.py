"""A checked source with its books: whose budget it charges, which columns it has, which public domain they have."""
