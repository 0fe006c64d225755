"""A mixture of product distributions, fitted to noisy tables: what `latent_class` and `aggregate_seeded` draw from."""
