"""The part that longshore's HTTP servers and clients share: messages, errors, endpoints, access control, serving,
client.

Layers, from below: messages, server_urls and task_codec; failures and json_client; endpoints and auth; application;
serving.
"""
