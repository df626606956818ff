"""Processes and tasks that a command starts beside its own work, and that never outlive it.

Background tasks, child processes, interruption by signals, and the reaper that ends all processes of a run.  The
package imports nothing else of launch; the reaper runs as a script, so no module here may have the name of one in the
standard library.
"""
