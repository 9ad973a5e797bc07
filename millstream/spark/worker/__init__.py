"""What runs in Python workers beside Spark, and how it gets there."""
