"""The REST API of the registry: routes by resource, and what all of them share."""
