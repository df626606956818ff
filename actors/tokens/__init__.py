"""Messages become token ids here, and sampled ids are kept exactly as they were sampled.

The chat format is at the bottom, then the token buffer and the segment tree, then the prompt context that an episode
asks with.  Agents, the gateway and rollout stand on it.
"""
