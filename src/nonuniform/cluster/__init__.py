"""What is alive: GPUs by name, and the state that health events lead to."""
