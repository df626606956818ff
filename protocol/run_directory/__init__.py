"""The files of a run's directory: their names, their writers, and the readers that follow them while they grow.

Layers, low to high: ``layout``, ``json_fields``, ``cursors``, ``blob_files``; the followers ``file_tail``, ``run_tail``
and ``recording_reader``; the writers (export, trained tokens, recordings, logs, lineage).  Nothing here imports a
package outside protocol.
"""
