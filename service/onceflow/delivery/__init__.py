"""Deliveries: carry the records of topics to another system. Needs neither Spark nor Arrow."""
