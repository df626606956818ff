"""Renders messages as token ids, and keeps sampled ids exactly as they were sampled.

The chat format is at the bottom, then the token buffer and the segment tree, then the prompt context of an episode.
Agents, the gateway and rollout build on this package.
"""
