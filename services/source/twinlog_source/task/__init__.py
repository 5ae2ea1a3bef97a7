"""The code that runs inside a Spark task: the control stream to the driver, and the copy itself. No pyspark
here."""
