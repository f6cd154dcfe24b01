"""Positions of deliveries in a compacted topic, and another Kafka as a target."""
