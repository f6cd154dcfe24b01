"""Before the query starts: look, check topics, register or repair."""
