"""The process groups of a learner rank, context-parallel exchange, and the adaptation of megatron-core, also to
machines without CUDA."""
