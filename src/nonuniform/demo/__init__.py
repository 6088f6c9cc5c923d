"""`nonuniform demo`: GPUs are lost and come back, and the loss curve does not notice.

In: a folder to write to. Out: two runs of one job, a comparison on the screen, a picture.
Does not know: torch, or how the runtime does it. It is started as any user would start it.
"""

from __future__ import annotations

from nonuniform.demo.play import Runtime, run

__all__ = ["Runtime", "run"]
