"""The connectors that come with Felice."""
