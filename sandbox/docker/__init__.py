"""The client of one Docker engine and of what it holds: containers, networks, committed images, owners, leaks.

``daemon`` is the blocking side for set-up. No module knows tasks.
"""
