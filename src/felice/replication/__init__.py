"""One partition's role on this broker, and the registry of all of them."""
