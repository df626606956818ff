"""Optimizer updates: micro-batches of this rank, trainer, optimizer, offload, the updates of a batch, supervised
fine-tuning and the report of a step."""
