"""What a run agrees on: pure state machines, free of torch, clocks, sockets and processes."""
