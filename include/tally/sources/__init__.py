"""From Kafka bytes to valid rows with their offsets: one decode for both layers, quarantine and archive."""
