"""Checkpoints: parts written by ranks on their own, published as a whole, loaded at any degree."""
