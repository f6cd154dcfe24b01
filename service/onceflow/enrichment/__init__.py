"""Asks a service for each record of topics, and writes records and answers to a topic, once."""
