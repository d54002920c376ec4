"""Functions of SQL in Python. See docs/sql.md."""

from felice.pipelines.sql.user_functions import Udaf, UserFunctionError, udaf, udf, udtf

__all__ = ["Udaf", "UserFunctionError", "udaf", "udf", "udtf"]
