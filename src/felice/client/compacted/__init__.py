"""A compacted topic with one partition as a mapping: read to its end, followed, and written with a fence."""
