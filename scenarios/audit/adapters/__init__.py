"""What other systems keep about who took part in which round: one file per system."""
