"""A database served to analysts: who they are, what they may say, what they are told."""
