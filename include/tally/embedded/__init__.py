"""What Tally itself starts on this machine for a TALLY_HOME, a broker and an Airflow, it also stops."""
