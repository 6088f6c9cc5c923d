"""Data with units in the names of the keys, and where each of it is from; no code lives here.

`provenance` of a figure of `failures/`: `read` in the source itself; `quoted` from another text
that cites it; `derived` by the arithmetic that is given; `assumed` where nothing was published.
"""
