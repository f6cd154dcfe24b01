"""Shared by commands: options, settings, and how they print."""
