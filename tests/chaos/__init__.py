"""A bounded run of faults against real processes, judged by what stands in the database at its end."""
