"""The environment service: a whole episode on the machine that has its sandbox.

A run's worker says which task, which agent and where the policy answers.  The service runs the agent's loop beside its
sandboxes, asks the policy at that address (the worker's gateway, which keeps each sampled token), grades, and returns
the outcome.  Only messages cross the network: no command of an agent waits for it.

- An episode belongs to the service and is named by its client; asking twice does not begin it twice.
- It lives as long as its client asks for it.  If the client is gone or the deadline has passed, it ends with its
  sandbox; so do all episodes of a service that is stopped, and each sandbox of one that is killed by its own deadline.
- A failure is a code that becomes the same error at the client.  An episode that its service no longer knows is an
  infrastructure loss and is never continued.

The messages are at the bottom, then ``episode`` (one episode), ``service`` (a machine's episodes, without HTTP) and
``app`` (its endpoints); ``client`` is the worker's side.  ``python -m launch.environment`` starts a service.
"""
