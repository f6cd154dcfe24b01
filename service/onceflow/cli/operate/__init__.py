"""Commands about pipelines that run or ran, and their topics."""
