"""The published figures of the NTP paper, computed again."""
