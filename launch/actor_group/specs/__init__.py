"""Derives the spec of each kind of actor from the run's configuration and the node that the actor starts on."""
