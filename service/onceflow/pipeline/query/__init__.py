"""The query over its sources, and the rules that it must keep."""
