"""What only the custodian does: protect, declare, and compare with the raw table, which is NOT PRIVATE."""
