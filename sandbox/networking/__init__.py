"""The networks of a sandbox in each phase of its task, and the task's services.

Layers, from below: networks; services and phases; task_services, which a pool uses.
"""
