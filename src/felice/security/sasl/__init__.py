"""SASL mechanisms, both sides of each, as state machines that receive and return tokens."""
