"""From a plan to DataFrames: each node of a pipeline becomes Columns, an operator, or a source or sink."""
