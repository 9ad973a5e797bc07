"""What the user writes: streams, tables, groupings and options. Makes nodes; runs nothing."""
