"""One interface to sandboxes of every provider: a pool in this process, a pool server or router, Daytona, or a
provider that another package adds.
"""
