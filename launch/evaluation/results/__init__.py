"""What an evaluation leaves on disk.

That is its folder with one line an attempt, its settings, and the summary, tables and page made of them. It knows
attempts and pass@k alone.
"""
