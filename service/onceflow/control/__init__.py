"""The control API and the status page of a service."""
