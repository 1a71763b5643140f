"""What others would run for the same answer, each a process of its own."""
