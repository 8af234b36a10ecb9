"""The parts of a LeRobot v3.0 recording: frame checks, video files, statistics, tables and metadata."""
