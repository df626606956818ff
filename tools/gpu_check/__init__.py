"""Checks the learner on one GPU: numerics against the CPU, speed, and what a training step must not depend on."""
