"""The batch layer: the archive takes each record once, and any range of windows can be stated again from it."""
