"""What tests reported and the verdict that follows from it, without I/O. pytest_summary and report_files read the reports, and verdict combines them by reported_names."""
