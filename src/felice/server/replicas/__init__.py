"""What the metadata image makes of this broker's replicas."""
