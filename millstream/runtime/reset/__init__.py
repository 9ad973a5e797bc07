"""Starting over: an application whose positions are set, or that counts from zero again."""
