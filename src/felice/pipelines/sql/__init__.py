"""Streaming SQL in ksqlDB's dialect, compiled to stream applications.

syntax      text to a tree, and a tree to text
"""
