"""An exhaustive search over the product's own protocol state machines.

`explore(Scope(...))` runs the machines of `onceflow.protocol` (lane, commit, take-over, comparison)
in every interleaving of a few drivers with a model of Kafka's transactions and of the checkpoint
that Spark keeps, and checks every world that it reaches.

    scope            how many drivers, lanes and batches; which faults
    product          the machines, memoised; Rules: the functions that a test may replace
    kafka            coordinator, epochs, EndTxn under way, the two ledger partitions
    spark            offset log and commit log
    run              a driver; why some of its actions may be executed together
    takeover_steps, query_steps, commit_steps, lane_steps
                     execute the machines' actions as the runtime does, with every outcome
    kafka_steps      what Kafka does by itself
    task_steps       what tasks of Spark write into the transaction of a driver
    checks           what must never happen
    steps, space     worlds as numbers; the mirror image of a world counts as the same world
    search           breadth first, so that a counterexample is a shortest one
    liveness         whether one driver alone can always finish
    removals         the protocol with one of its rules taken away

The search knows nothing of time: a pause is a run that is not scheduled, a crash is a run that is
never scheduled again, and a restart is the next run. A shared checkpoint, two rivals and a zombie
are therefore one and the same setting.
"""
