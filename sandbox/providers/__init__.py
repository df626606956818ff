"""One interface to sandboxes wherever they are: in this process, behind a pool server or a router, at Daytona, or at a
provider that another package adds.

Layers, from below: interface and settings; remote and remote_tools; pool_servers, plugins and daytona/.
"""
