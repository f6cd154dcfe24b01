"""The product, broken on purpose: one patch for each guarantee, and the tests that must notice.

    python -m tests.faults.mutants                 all of them, with a table
    python -m tests.faults.mutants NAME...         some
    python -m tests.faults.mutants --list          what there is
    python -m tests.faults.mutants --json FILE     the verdicts as JSON lines

A patch begins with a header: `what:` says which guarantee is broken, each `caught-by:` names a test
that must turn red, the cheapest first. Tests of tests/faults and tests/integration run on a real
broker, which is started once for all mutants.
"""
