"""The policy model on megatron-core: shape, layers, attention, log-probabilities, adapters, and the way of its weights
from and to Hugging Face folders. Layers: qwen, hf_folder, kernels, flops; attention, layers, adapters;
weight_conversion and lora; policy_model."""
