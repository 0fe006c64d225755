"""The method `dpcopula_kendall`: noisy margins, noisy Kendall's tau, a Gaussian copula."""
