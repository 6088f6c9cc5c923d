"""Nonuniform tensor parallelism: replicas of different degree that train one model together."""

__version__ = "0.1.0"
