"""The one event table that every run leaves behind, its Parquet writers and readers."""
