"""How much a step takes, foreseen from plans: memory so far."""
