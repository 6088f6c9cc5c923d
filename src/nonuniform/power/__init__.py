"""Watts and degrees: what a boost draws, whether it fits, and how long it lasts."""
