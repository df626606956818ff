"""What a run is trained on and starts from: the model folder, the split of tasks into training and held-out ones, and the supervised warm start."""
