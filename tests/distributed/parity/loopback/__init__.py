"""Real processes on the loopback address, and one process to compare them with."""
