"""Options of workers, connectors, converters and transformations: their definitions, and their values."""
