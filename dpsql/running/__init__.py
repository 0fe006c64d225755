"""Long calculations: threads, BLAS, progress, memory, and how they are stopped. Knows neither data nor privacy."""
