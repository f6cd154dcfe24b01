"""Files, YAML with places, and keys to suggest."""
