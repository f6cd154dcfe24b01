"""Whether a replay computes the same rows: what can be known before the start.

`plan_rules` judges Spark's analysed plan, `python_code` the user's functions by their source. What
neither can see, such as a C extension that rolls dice, is caught by the digest at the first replay.
"""
