"""Whether the topics are still the ones that the progress of the application belongs to."""
