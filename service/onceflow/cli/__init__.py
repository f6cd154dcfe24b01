"""The command line: parse, wire, run, exit code."""
