"""Commands for files of other kinds than pipelines: a module for each kind."""
