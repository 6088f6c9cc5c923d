"""What failures cost a cluster: a trace in, throughput, GPU-hours and spares out."""
