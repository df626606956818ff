"""Jobs, their order, and their workers."""
