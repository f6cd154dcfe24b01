"""A random mix of faults on three brokers and a real service, with quiet phases in between."""
