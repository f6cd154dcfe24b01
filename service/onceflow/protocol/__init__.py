"""The exactly-once protocol. Pure: no I/O, no clock, no Spark, no Kafka."""
