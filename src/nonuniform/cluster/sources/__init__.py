"""Where failures come from: rates, published ones too, and the logs that people keep."""
