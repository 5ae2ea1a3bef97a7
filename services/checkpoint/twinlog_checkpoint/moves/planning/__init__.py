"""What a move would do now: reads, decides and counts. Changes nothing."""
