"""What a learner rank writes and reads: sharded checkpoints of weights, optimizer and random state, and published
weight versions as Hugging Face or PEFT folders."""
