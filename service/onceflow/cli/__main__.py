"""`python -m onceflow.cli`: the same as the command `onceflow`, for child processes of ours."""

from onceflow.cli.main import main

main()
