"""Connectors to other systems, each a folder that knows nothing of the others."""
