"""`nonuniform doctor`: what of this machine would hinder a run, and what to do about it.

`measure` looks, `judge` decides (pure), `examine` puts the two together, `show` prints.
"""
