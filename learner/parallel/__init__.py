"""The process groups of a learner rank, what its ranks exchange, and the one place where megatron-core is named and
where it meets a machine without CUDA."""
