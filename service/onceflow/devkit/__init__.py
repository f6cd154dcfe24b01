"""Tools for users and tests: real brokers on this machine, data, a demo, faults."""
