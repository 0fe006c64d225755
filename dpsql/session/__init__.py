"""One database and its connections: cursors of our own with pinned settings, the release store, locks."""
