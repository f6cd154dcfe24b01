"""The blocks of a pipeline file, and how it is loaded."""
