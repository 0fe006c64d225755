"""The method `gaussian_copula`: a latent normal over one-hot columns."""
