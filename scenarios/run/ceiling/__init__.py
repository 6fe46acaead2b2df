"""The ceiling: what the evidence could give at best. Only scoring computes it, because it needs the truth."""
