"""SWE-SYNTH's bugs: JSON Lines or a JSON array of the objects from which its environment makes its tasks.

``bug_rows`` is the format; ``repository_image`` is for a repository in a named image, ``made_repository`` for one that
the row holds whole; ``tests_files`` says which files are the tests'; ``count_tests`` runs in containers.
"""
