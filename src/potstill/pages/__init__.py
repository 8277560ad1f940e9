"""Pages of charts and tables that need no network, and pictures of them."""
