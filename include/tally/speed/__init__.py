"""The speed layer: one Structured Streaming query per pipeline, each micro-batch a Delta commit naming its offsets."""
