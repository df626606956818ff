"""Sends a run's metrics to Prometheus, W&B, TensorBoard, trackio or a plugin's tracker.

A process of its own follows the run's files, a thread for each taker.  The file is the queue: nothing is kept in memory
for one who is slow, and neither a taker that fails nor one that hangs is known to the run before its end, where it is
waited for a few seconds.
"""
