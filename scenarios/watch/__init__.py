"""The live view of a recording: how many clients can be told apart by now, and soon."""
