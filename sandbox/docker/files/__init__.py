"""The files of containers: the disk that holds their writes, what the daemon says of a path, and images of them.

``loop_disk`` bounds the writes, ``file_status`` reads the status of a path, ``user_files`` checks those that the daemon
reads itself, and ``committed_images`` makes and removes images.
"""
