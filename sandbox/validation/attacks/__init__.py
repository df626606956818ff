"""The suite of attacks on a task's tests that ``longshore tasks attack`` tries: what could a cheat earn?

Each attack is one command that an agent, as root, could run instead of solving the task. They stand for what was seen
in public: threads on reward hacking in terminal benchmarks and their harnesses.
"""
