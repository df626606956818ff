"""What pool server and router have in common: who may speak to them, how a request becomes a message, how they end."""
