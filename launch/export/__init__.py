"""What runs and evaluations recorded, in the forms that other projects read."""
