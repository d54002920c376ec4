"""Applies each metadata image to the replicas of this broker."""
