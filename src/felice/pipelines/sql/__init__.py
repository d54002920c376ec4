"""Streaming SQL in ksqlDB's dialect, compiled to stream applications.

syntax      text to a tree, and a tree to text
types       types, which of two holds the values of both, and what arithmetic makes of them
"""
