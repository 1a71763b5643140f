"""What a commit says that it wrote, and whether archive and quarantine still hold that."""
