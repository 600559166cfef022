"""Laws as plain functions over scalars or NumPy arrays: numbers and shapes in, numbers out.

Nothing here knows a Job, a price or a file. Each docstring has the unit, the equation, its source and where it
deviates from what is measured.
"""
