"""Settings that topics need, and the end of the output topic."""
