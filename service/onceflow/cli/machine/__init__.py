"""Commands about this machine: a broker, a demonstration, what is missing."""
