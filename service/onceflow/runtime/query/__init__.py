"""The running query: built, started, watched, drained."""
