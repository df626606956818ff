"""The part that longshore's HTTP servers and clients share: messages, errors, endpoints, access control, serving,
client.
"""
