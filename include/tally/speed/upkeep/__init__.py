"""What keeps a stream's table small beside its micro-batches, and remembers what its short log forgets."""
