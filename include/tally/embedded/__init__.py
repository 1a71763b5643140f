"""What Tally starts on this machine by itself: a broker and an Airflow of a TALLY_HOME, and nothing that it does not stop."""
