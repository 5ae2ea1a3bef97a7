"""What a move would do now: looked at, decided and counted. Changes nothing."""
