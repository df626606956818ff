"""Accounts and their statements."""
