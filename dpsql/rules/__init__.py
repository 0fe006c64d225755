"""Rules that every row obeys, as the custodian declared them: what they may say, what they mean for tables, which contradict."""
