"""Who attempts a task: a served model, a model at a URL, a harness in the sandbox, the task's own solution, or nobody.

`solver` has the protocol; `models` and `harnesses` implement it; `api_relay` carries a harness's requests to a URL.
"""
