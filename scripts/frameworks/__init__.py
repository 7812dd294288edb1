"""Real frameworks through the faults that their users reported."""
