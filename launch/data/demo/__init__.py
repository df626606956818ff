"""The demo's policy, a Qwen3-shaped model small enough to learn a shell on two CPU cores, and its warm start."""
