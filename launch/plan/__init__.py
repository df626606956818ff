"""What a run would need and come to, before it starts: memory by part, from the model's shape; speed and age, from a
trace of episodes and steps that were measured, by the simulator; how many engines, sandboxes and machines that takes.
"""
