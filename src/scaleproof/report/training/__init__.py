"""What is special to the report of a training run."""
