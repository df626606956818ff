"""What a sandbox can reach in each phase of its task, and the services that run beside it on a private network. Layers: networks; services and phases; the task's services as one context."""
