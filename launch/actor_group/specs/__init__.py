"""What each kind of actor is constructed with, derived from the run's configuration and the node it starts on."""
