"""`python -m onceflow.cli`: the same as the command `onceflow`, for our own child processes."""

from onceflow.cli.main import main

main()
