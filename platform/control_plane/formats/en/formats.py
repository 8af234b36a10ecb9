"""How dates are written where a template names no format: as ISO says, always UTC."""

DATE_FORMAT = SHORT_DATE_FORMAT = "Y-m-d"
DATETIME_FORMAT = SHORT_DATETIME_FORMAT = "Y-m-d H:i:s"
TIME_FORMAT = "H:i:s"
MONTH_DAY_FORMAT = "j F"
YEAR_MONTH_FORMAT = "F Y"
