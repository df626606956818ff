"""From a leased batch of trajectories to packed micro-batches. Layers: micro-batches and their packing; sequences and
the context-parallel split; batch, which reads a payload and accounts for every token. Nothing here touches a device."""
