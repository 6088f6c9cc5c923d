"""What a person asks of the simulator: SCENARIO.toml read, built, put into words, run."""
