"""The road of a release: check, plan, charge, then (and only then) measure, store."""
