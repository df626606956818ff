"""Sharded checkpoints of weights, optimizer and random state, and published weight versions as Hugging Face or PEFT
folders."""
