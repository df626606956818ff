"""What crosses a process boundary, and the pure rules about it.

This room imports none of ours and no torch, ray or docker, so that every other room, a reader on a laptop and a test
can use it at the price of numpy, orjson, zmq and the standard library.
"""
