"""Text for pages of fixed width."""
