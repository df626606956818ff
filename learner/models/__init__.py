"""The policy model on megatron-core: shape, layers, attention, log-probabilities, adapters, and the way of its weights
from and to Hugging Face folders."""
