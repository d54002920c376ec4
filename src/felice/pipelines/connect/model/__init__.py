"""Records, schemas and structs: what connectors, converters and transformations give each other."""
