"""References of a pipeline: which rows make a table. No Spark."""
