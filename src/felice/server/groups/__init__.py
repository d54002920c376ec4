"""The coordinators of this broker, and the search for those of other brokers."""
