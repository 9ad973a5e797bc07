"""What the user writes: streams, tables, groupings, options and serdes. Makes nodes; runs nothing."""
