"""Both layers' rows, and the events behind them, read without a JVM: most windows agree, and need nothing more.

What cannot be told here exactly as Spark tells it is not told at all: `Unsure` says why, and Spark reads instead.
"""
