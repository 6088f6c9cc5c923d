"""The runtime: the only package here that imports torch."""
