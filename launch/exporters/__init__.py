"""Sends a run's metrics to Prometheus, W&B, TensorBoard, trackio or a plugin's tracker.

A separate process follows the run's files, with one thread per exporter.  The files are the queue: nothing is held in
memory for a slow exporter.  An exporter that fails or hangs does not affect the run; when the run ends, each exporter
has a few seconds to send the rest.
"""
