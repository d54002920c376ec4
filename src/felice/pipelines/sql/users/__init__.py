"""The implementation of `felice.pipelines.sql.user_functions`.

values      values and types of SQL in Python, and back
signatures  signatures of functions from texts and annotations
calls       calls of users' Python, with errors that name it
"""
