"""Public domains: attributes and types, which code a value has, and which value a code stands for."""
