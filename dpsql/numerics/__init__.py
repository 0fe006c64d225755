"""Linear algebra and probability without privacy: normal integrals, nearest correlation matrices."""
