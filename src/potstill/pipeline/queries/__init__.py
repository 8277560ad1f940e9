"""What the service's pages ask of a workspace, answered in a process of its own: it loads tables and teachers."""
