"""What a program means: nodes, names, subtopologies, pipelines, and how they print. Standard library only."""
