"""The speed layer: one Structured Streaming query per pipeline, each micro-batch one Delta commit that names its offsets."""
