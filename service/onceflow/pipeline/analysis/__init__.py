"""Analysis of a whole pipeline, before it runs."""
