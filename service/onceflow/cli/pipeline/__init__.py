"""Commands about a pipeline file: write, check, explain and run it."""
