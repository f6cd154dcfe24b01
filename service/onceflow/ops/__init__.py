"""What operators need: logs and drain on signals."""
