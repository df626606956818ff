"""The parts of :mod:`sandbox.grading.grader`: where tests run, how their reports are read, what their words are worth.

``outcome`` holds the values and the rule that makes a verdict of them; ``summary`` and ``reports`` read what tests say;
``place`` prepares the container that they run in, with ``alone``, ``daemon``, ``artifacts`` and ``scratch`` for its
steps; ``linked`` removes the links that lead to the tests; ``whose`` says whose programs run the tests, with
``script``, ``numbers``, ``readers``, ``written``, ``nobody`` and ``pytest_call`` for what it reads; ``suspicion`` which
passes a person should read.
"""
