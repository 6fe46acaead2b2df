"""What a found column is worth: proofs, outcomes and confidences."""
