"""What is declared: topics and pipelines as frozen values. No session, no I/O beyond the files read, no Airflow."""
