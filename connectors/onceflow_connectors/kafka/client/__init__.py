"""Clients of librdkafka, their settings, and what their errors mean."""
