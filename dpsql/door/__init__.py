"""Where a call comes in: whose connection it is, which function answers it."""
