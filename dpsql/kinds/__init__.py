"""Kinds of statistics that can be bought: each knows how it is planned and priced (`plan`), and how it is measured (`measure`)."""
