"""Reading protected rows: encode, count, add noise. The only place where that happens for a release."""
