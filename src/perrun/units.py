"""The only 1024 and the only 1e9 of the house: every other module imports them from here."""

KIB = 1024
MIB = 1024**2
GIB = 1024**3
GB = 10**9
MILLION = 10**6
TERA = 10**12

SECONDS_PER_MINUTE = 60
SECONDS_PER_HOUR = 3600
HOURS_PER_DAY = 24
HOURS_PER_MONTH = 730  # 365.25 days / 12, the month that clouds bill storage by


def gib(n_bytes: float) -> float:
    """Bytes to GiB (2**30 bytes)."""
    return n_bytes / GIB
