"""The user's file: its model, its loader and what can be known about it before a start."""
