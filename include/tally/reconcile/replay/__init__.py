"""What became of each archived event in the stream, and what the stream must have put out."""
