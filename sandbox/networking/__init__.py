"""What a sandbox can reach: its network in each phase of its task, and the task's services beside it.

Layers, from below: networks; services and phases; task_services, which a pool uses.
"""
