"""What a task does, as a value: decided from the topology alone, before Spark is asked anything."""
