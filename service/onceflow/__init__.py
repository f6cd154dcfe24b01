"""Exactly-once streaming from Kafka, through Spark SQL, to Kafka."""
