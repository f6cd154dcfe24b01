"""Java: which one is used, and the archives of classes from which it starts quickly."""
