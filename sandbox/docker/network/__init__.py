"""The networks of containers: private ones without a route outside, and sockets into containers without any.

``private_networks`` makes the former; ``network_namespace`` opens a socket in another namespace, and
``container_sockets`` one in a container's.
"""
