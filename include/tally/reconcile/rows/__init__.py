"""The rows of both layers side by side: what they digest to, and how far apart they may lie."""
