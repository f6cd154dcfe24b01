"""The benchmark: throughput, latency, CPU and memory, against Spark's own Kafka connector and sink.

Every figure comes from the same query on the same records, and counts only if the whole output
equals what an oracle computed without Spark.
"""
