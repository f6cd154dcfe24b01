"""The state of a pipeline as data: by key and by name, as of a batch, whether it runs or not."""
